// StreamChannel behaves as the contract's: cancel wakes at once and is not a finish; a wait really waits.
#include "contract/stream_channel.hpp"

#include <poll.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "check.hpp"

using edgellm::FinishReason;
using edgellm::StreamChannel;
using edgellm::StreamChunk;
using edgellm::StreamSignal;

namespace {

constexpr int64_t kGenerousMs = 60'000;

StreamChunk chunk(const std::string& text, bool finished = false, FinishReason reason = FinishReason::kNotFinished) {
    StreamChunk made;
    made.text = text;
    made.finished = finished;
    made.reason = reason;
    return made;
}

}  // namespace

TEST(a_fresh_channel_is_empty_and_open) {
    const auto channel = StreamChannel::create();
    CHECK(!channel->try_pop());
    CHECK(!channel->is_finished());
    CHECK(!channel->is_cancelled());
    CHECK(channel->get_reason() == FinishReason::kNotFinished);
    CHECK(channel->get_stream_interval() == 1);
    CHECK(channel->get_skip_special_tokens());
}

TEST(chunks_come_out_in_order_and_the_terminal_one_finishes) {
    const auto channel = StreamChannel::create();
    CHECK(channel->push(chunk("a")));
    CHECK(channel->push(chunk("b", true, FinishReason::kEndId)));
    CHECK(channel->is_finished());
    CHECK(channel->get_reason() == FinishReason::kEndId);
    CHECK(channel->wait_pop(kGenerousMs)->text == "a");
    CHECK(channel->try_pop()->text == "b");
    CHECK(!channel->wait_pop(kGenerousMs));  // finished and drained: no wait
}

TEST(only_one_terminal_chunk_is_taken) {
    const auto channel = StreamChannel::create();
    CHECK(channel->push(chunk("", true, FinishReason::kLength)));
    CHECK(!channel->push(chunk("", true, FinishReason::kError)));
    CHECK(channel->get_reason() == FinishReason::kLength);
}

TEST(cancel_wakes_waiting_readers_and_is_no_finish) {
    const auto channel = StreamChannel::create();
    std::vector<std::thread> readers;
    for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&] { CHECK(!channel->wait_pop(kGenerousMs)); });
    }
    channel->cancel();
    for (std::thread& reader : readers) reader.join();
    CHECK(channel->is_cancelled());
    CHECK(!channel->is_finished());
    CHECK(channel->get_reason() == FinishReason::kNotFinished);
    CHECK(!channel->wait_pop(kGenerousMs));
    CHECK(!channel->push(chunk("late")));
    CHECK(!channel->try_pop());
}

TEST(cancel_drops_what_was_not_read) {
    const auto channel = StreamChannel::create();
    channel->push(chunk("unread"));
    channel->cancel();
    CHECK(!channel->try_pop());
}

TEST(a_wait_lasts_as_long_as_it_was_asked_to) {
    const auto channel = StreamChannel::create();
    const auto started = std::chrono::steady_clock::now();
    CHECK(!channel->wait_pop(50));
    CHECK(std::chrono::steady_clock::now() - started >= std::chrono::milliseconds(50));
    CHECK(!channel->wait_pop(-1));
    CHECK(!channel->wait_pop(0));
}

TEST(a_huge_timeout_does_not_overflow) {
    const auto channel = StreamChannel::create();
    std::thread producer([&] { channel->push(chunk("x")); });
    CHECK(channel->wait_pop(INT64_MAX)->text == "x");
    producer.join();
}

TEST(a_reader_gets_every_chunk_of_a_producer) {
    const auto channel = StreamChannel::create();
    constexpr int kChunks = 2000;
    std::thread producer([&] {
        for (int i = 0; i < kChunks; ++i)
            channel->push(chunk(std::to_string(i), i + 1 == kChunks, FinishReason::kEndId));
    });
    for (int i = 0; i < kChunks; ++i) {
        const auto popped = channel->wait_pop(kGenerousMs);
        CHECK(popped && popped->text == std::to_string(i));
    }
    producer.join();
    CHECK(channel->is_finished());
}

TEST(settings_are_kept_and_an_interval_below_one_acts_as_one) {
    const auto channel = StreamChannel::create();
    channel->set_stream_interval(0);
    CHECK(channel->get_stream_interval() == 1);
    channel->set_skip_special_tokens(false);
    CHECK(!channel->get_skip_special_tokens());
}

namespace {

bool readable(const StreamSignal& signal) {
    pollfd waited{signal.descriptor(), POLLIN, 0};
    return poll(&waited, 1, 0) == 1;
}

}  // namespace

TEST(a_signal_is_raised_by_what_comes_and_by_what_had_come) {
    const auto signal = StreamSignal::create();
    const auto first = StreamChannel::create();
    const auto second = StreamChannel::create();
    CHECK(!readable(*signal));
    first->set_signal(signal);
    CHECK(readable(*signal));
    second->set_signal(signal);
    signal->clear();
    CHECK(!readable(*signal));
    for (const auto& channel : {first, second}) {
        CHECK(channel->push(chunk("a")));
        CHECK(readable(*signal));
        signal->clear();
        CHECK(!readable(*signal));
    }
    first->raise_signal();
    CHECK(readable(*signal));
    signal->clear();
    second->cancel();
    CHECK(!second->push(chunk("b")));
    CHECK(!readable(*signal));
}

TEST(no_raise_is_lost_between_a_reader_and_its_writers) {
    constexpr int kWriters = 3;
    constexpr int kChunks = 20'000;
    const auto signal = StreamSignal::create();
    std::vector<std::shared_ptr<StreamChannel>> channels;
    for (int i = 0; i < kWriters; ++i) {
        channels.push_back(StreamChannel::create());
        channels.back()->set_signal(signal);
    }
    std::vector<std::thread> writers;
    for (const auto& channel : channels) {
        writers.emplace_back([channel] {
            for (int i = 0; i < kChunks; ++i) CHECK(channel->push(chunk("a")));
        });
    }
    int taken = 0;
    while (taken < kWriters * kChunks) {
        pollfd waited{signal->descriptor(), POLLIN, 0};
        CHECK(poll(&waited, 1, static_cast<int>(kGenerousMs)) == 1);
        signal->clear();
        for (const auto& channel : channels) {
            while (channel->try_pop()) ++taken;
        }
    }
    CHECK(taken == kWriters * kChunks);
    for (std::thread& writer : writers) writer.join();
}

TEST(a_signal_outlives_its_owner_for_channels_that_may_raise_it) {
    const auto channel = StreamChannel::create();
    auto signal = StreamSignal::create();
    channel->set_signal(signal);
    signal.reset();
    CHECK(channel->push(chunk("a")));
    channel->set_signal(nullptr);
    CHECK(channel->push(chunk("b")));
}

CHECK_MAIN()
