// RequestEngine: admission, cancellation, shutdown and failure, seen from many threads.
#include "check.hpp"
#include "scripted_executor.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

using edgellm::FinishReason;
using edgellm::RequestEngine;
using edgellm::RequestHandle;
using edgellm::ShutdownMode;
using edgellm::StreamChannel;
using edgellm::StreamChunk;
using edgellm::SubmitRefused;
using scripted::make_prompt;
using scripted::make_request;
using scripted::PartsWanted;
using scripted::Script;

namespace {

constexpr int64_t kGenerousMs = 60'000;

std::unique_ptr<RequestEngine> make_engine(const std::shared_ptr<Script>& script, const PartsWanted& wanted = {},
                                           int32_t max_pending = 256, int32_t queue_capacity = 64) {
    return edgellm::make_request_engine(scripted::make_parts(script, wanted), max_pending, queue_capacity);
}

// Waits on a state that another thread brings about.
template <typename Condition>
bool eventually(const Condition& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kGenerousMs);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

// Holds the engine inside a step until opened.
class Gate {
public:
    void pass() {
        std::unique_lock<std::mutex> lock(mutex_);
        ++arrivals_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return open_; });
    }
    void wait_for_arrival() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return arrivals_ > 0; });
    }
    void open() {
        const std::lock_guard<std::mutex> lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int arrivals_ = 0;
    bool open_ = false;
};

std::vector<StreamChunk> read_all(StreamChannel& channel) {
    std::vector<StreamChunk> chunks;
    while (auto chunk = channel.wait_pop(kGenerousMs)) chunks.push_back(std::move(*chunk));
    return chunks;
}

}  // namespace

TEST(a_request_streams_and_its_handle_gives_the_whole) {
    const auto script = std::make_shared<Script>();
    const auto engine = make_engine(script);
    const auto handle = engine->submit(make_request(make_prompt(1, 20), 10));
    std::vector<int32_t> streamed;
    std::string text;
    int terminals = 0;
    const auto chunks = read_all(*handle->stream());
    for (const StreamChunk& chunk : chunks) {
        streamed.insert(streamed.end(), chunk.token_ids.begin(), chunk.token_ids.end());
        text += chunk.text;
        terminals += chunk.finished ? 1 : 0;
    }
    const auto response = handle->get();
    CHECK(response.output_ids[0] == streamed);
    CHECK(response.output_texts[0] == text);
    CHECK(terminals == 1 && chunks.back().finished);
    CHECK(chunks.front().prompt_token_count == 20);
    CHECK(chunks.front().reused_token_count == 0);
    CHECK(handle->ready() && handle->valid() && handle->id() > 0);
    CHECK(handle->get().output_ids == response.output_ids);  // as often as asked
    const auto metrics = engine->metrics();
    CHECK(metrics.submitted == 1 && metrics.completed == 1 && metrics.queue_latency_count == 1);
    CHECK(engine->resident() == 0 && engine->queued() == 0);
    CHECK(engine->steps_completed() == 10);
    CHECK(engine->generation_metrics().generated_tokens == 10);
}

TEST(many_submitters_get_what_each_gets_alone) {
    const auto script = std::make_shared<Script>();
    const auto engine = make_engine(script);
    const auto lone_script = std::make_shared<Script>();
    const auto alone = edgellm::make_llm_runtime(scripted::make_parts(lone_script));
    constexpr int kThreads = 6;
    constexpr int kRequests = 12;
    std::vector<std::vector<std::vector<int32_t>>> answers(kThreads);
    std::vector<std::thread> threads;
    const auto request_for = [](int thread, int i) {
        auto request = make_request(make_prompt(thread * 3 + i % 4, 5 + i * 7), 12);
        request.temperature = 0.7F;
        request.requests[0].sampling_seed = static_cast<uint64_t>(thread * 100 + i);
        return request;
    };
    for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&, thread] {
            for (int i = 0; i < kRequests; ++i) {
                answers[static_cast<std::size_t>(thread)].push_back(
                    engine->submit(request_for(thread, i))->get().output_ids[0]);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (int thread = 0; thread < kThreads; ++thread) {
        for (int i = 0; i < kRequests; ++i) {
            CHECK(answers[static_cast<std::size_t>(thread)][static_cast<std::size_t>(i)] ==
                  alone->handle_request(request_for(thread, i)).output_ids[0]);
        }
    }
    CHECK(script->most_groups <= 4);
}

TEST(requests_join_while_others_run_and_leave_when_done) {
    const auto script = std::make_shared<Script>();
    const auto engine = make_engine(script);
    const auto long_one = engine->submit(make_request({1}, 200));
    CHECK(long_one->stream()->wait_pop(kGenerousMs));
    const auto short_one = engine->submit(make_request({2}, 3));
    CHECK(short_one->get().output_ids[0].size() == 3);
    CHECK(long_one->get().output_ids[0].size() == 200);
    CHECK(engine->metrics().completed == 2);
}

TEST(admission_is_first_in_first_out_and_bounded) {
    const auto script = std::make_shared<Script>();
    Gate gate;
    script->before_step = [&] { gate.pass(); };
    PartsWanted wanted;
    wanted.max_batch_size = 1;
    const auto engine = make_engine(script, wanted, 4, 2);
    std::vector<std::shared_ptr<RequestHandle>> handles{engine->submit(make_request({1}, 2))};
    gate.wait_for_arrival();  // the actor is in a step: commands stay in their queue
    handles.push_back(engine->submit(make_request({2}, 2)));
    handles.push_back(engine->submit(make_request({3}, 2)));
    CHECK_THROWS(engine->submit(make_request({4}, 2)), SubmitRefused, "command queue is full");
    CHECK(engine->queued() == 2);
    CHECK(engine->resident() == 1);
    CHECK(engine->metrics().refused == 1);
    gate.open();
    for (const auto& handle : handles) CHECK(handle->get().output_ids[0].size() == 2);
    CHECK(handles[0]->id() < handles[1]->id() && handles[1]->id() < handles[2]->id());
    CHECK(engine->metrics().stalls_no_capacity >= 1);
    CHECK(engine->metrics().completed == 3);
}

TEST(requests_in_flight_are_bounded) {
    const auto script = std::make_shared<Script>();
    Gate gate;
    script->before_step = [&] { gate.pass(); };
    const auto engine = make_engine(script, {}, 2, 64);
    const auto first = engine->submit(make_request({1}, 1));
    const auto second = engine->submit(make_request({2}, 1));
    CHECK_THROWS(engine->submit(make_request({3}, 1)), SubmitRefused, "too many requests in flight");
    gate.open();
    first->get();
    second->get();
    CHECK(engine->submit(make_request({3}, 1))->get().output_ids[0].size() == 1);
}

TEST(wrong_requests_are_refused_and_harm_nobody) {
    const auto script = std::make_shared<Script>();
    const auto engine = make_engine(script);
    auto two = make_request({1}, 1);
    two.requests.push_back(two.requests[0]);
    CHECK_THROWS(engine->submit(two), SubmitRefused, "exactly one sequence");
    CHECK_THROWS(engine->submit(edgellm::LLMGenerationRequest()), SubmitRefused, "exactly one sequence");
    CHECK_THROWS(engine->submit(make_request(make_prompt(1, 300), 1)), edgellm::InvalidRequest,
                 "EDGELLM_INPUT_TOO_LONG");
    CHECK(engine->metrics().refused == 3);
    CHECK(engine->submit(make_request({1}, 1))->get().output_ids[0].size() == 1);
}

TEST(cancelling_by_handle_channel_or_id_ends_a_running_request) {
    const auto script = std::make_shared<Script>();
    PartsWanted wanted;
    wanted.max_kv_tokens = 4000;
    wanted.kv_page_tokens = 64;
    const auto engine = make_engine(script, wanted);
    for (int way = 0; way < 3; ++way) {
        const auto handle = engine->submit(make_request({way}, 3900));
        CHECK(handle->stream()->wait_pop(kGenerousMs));
        if (way == 0) handle->cancel();
        if (way == 1) handle->stream()->cancel();
        if (way == 2) engine->cancel(handle->id());
        CHECK_THROWS(handle->get(), edgellm::Error, "cancelled");
        if (way == 1) {
            CHECK(!handle->stream()->is_finished());
        } else {
            CHECK(read_all(*handle->stream()).back().reason == FinishReason::kCancelled);
        }
    }
    engine->cancel(999'999);  // unknown: nothing happens
    CHECK(engine->metrics().cancelled == 3);
    CHECK(engine->resident() == 0);
}

TEST(a_queued_request_that_is_cancelled_never_starts) {
    const auto script = std::make_shared<Script>();
    Gate gate;
    script->before_step = [&] { gate.pass(); };
    PartsWanted wanted;
    wanted.max_batch_size = 1;
    const auto engine = make_engine(script, wanted);
    const auto running = engine->submit(make_request({1}, 50));
    gate.wait_for_arrival();
    const auto queued = engine->submit(make_request({2}, 50));
    queued->stream()->cancel();
    gate.open();
    CHECK_THROWS(queued->get(), edgellm::Error, "cancelled");
    CHECK(running->get().output_ids[0].size() == 50);
    CHECK(script->rows == 50);
    CHECK(engine->queued() == 0);
}

TEST(a_drain_finishes_what_was_taken_and_takes_no_more) {
    const auto script = std::make_shared<Script>();
    const auto engine = make_engine(script);
    std::vector<std::shared_ptr<RequestHandle>> handles;
    for (int32_t i = 0; i < 10; ++i) handles.push_back(engine->submit(make_request({i}, 20)));
    engine->shutdown(ShutdownMode::kDrain);
    for (const auto& handle : handles) CHECK(handle->ready() && handle->get().output_ids[0].size() == 20);
    CHECK(!engine->running());
    CHECK_THROWS(engine->submit(make_request({1}, 1)), SubmitRefused, "shutting down");
    engine->shutdown(ShutdownMode::kCancel);  // again: returns at once
}

TEST(a_cancelling_shutdown_ends_everything_even_during_a_drain) {
    const auto script = std::make_shared<Script>();
    PartsWanted wanted;
    wanted.max_kv_tokens = 4000;
    wanted.kv_page_tokens = 64;
    const auto engine = make_engine(script, wanted);
    std::vector<std::shared_ptr<RequestHandle>> handles;
    for (int32_t i = 0; i < 10; ++i) handles.push_back(engine->submit(make_request({i}, 3900)));
    std::thread drainer([&] { engine->shutdown(ShutdownMode::kDrain); });
    CHECK(eventually([&] { return script->steps > 3; }));
    engine->shutdown(ShutdownMode::kCancel);
    drainer.join();
    for (const auto& handle : handles) CHECK_THROWS(handle->get(), edgellm::Error, "cancelled");
    CHECK(engine->metrics().cancelled == 10);
}

TEST(handles_and_channels_outlive_the_engine) {
    const auto script = std::make_shared<Script>();
    PartsWanted wanted;
    wanted.max_kv_tokens = 4000;
    wanted.kv_page_tokens = 64;
    auto engine = make_engine(script, wanted);
    const auto done = engine->submit(make_request({1}, 3));
    done->get();
    const auto running = engine->submit(make_request({2}, 3900));
    CHECK(running->stream()->wait_pop(kGenerousMs));
    engine.reset();
    CHECK(done->get().output_ids[0].size() == 3);
    CHECK_THROWS(running->get(), edgellm::Error, "cancelled");
    running->cancel();
    CHECK(read_all(*running->stream()).back().finished);
}

TEST(a_failed_step_fails_everything_and_the_engine_says_so) {
    const auto script = std::make_shared<Script>();
    PartsWanted wanted;
    wanted.max_batch_size = 2;
    script->fail_at_step = 5;
    std::atomic<bool> all_submitted{false};
    script->before_step = [&] {
        while (script->steps == script->fail_at_step && !all_submitted) std::this_thread::yield();
    };
    const auto engine = make_engine(script, wanted);
    std::vector<std::shared_ptr<RequestHandle>> handles;
    for (int32_t i = 0; i < 5; ++i) handles.push_back(engine->submit(make_request({i}, 100)));
    all_submitted = true;
    for (const auto& handle : handles) {
        CHECK_THROWS(handle->get(), edgellm::ExecutorError, "failed worker");
        CHECK(read_all(*handle->stream()).back().reason == FinishReason::kError);
    }
    CHECK(!engine->running());
    CHECK_THROWS(engine->submit(make_request({1}, 1)), SubmitRefused, "failed worker");
    CHECK(engine->metrics().failed == 5);
    CHECK(engine->queued() == 0 && engine->resident() == 0);
    engine->shutdown(ShutdownMode::kDrain);
}

TEST(an_idle_engine_tells_the_executor_and_makes_no_steps) {
    const auto script = std::make_shared<Script>();
    const auto engine = make_engine(script);
    CHECK(eventually([&] { return script->idle_calls == 1; }));
    engine->submit(make_request({1}, 3))->get();
    CHECK(eventually([&] { return script->idle_calls == 2; }));
    CHECK(script->steps == 3);
    CHECK(engine->running());
}

TEST(a_prompt_encoder_runs_on_the_submitting_thread) {
    const auto script = std::make_shared<Script>();
    auto parts = scripted::make_parts(script);
    std::thread::id encoded_on;
    parts.prompt_encoder = [&](const edgellm::LLMGenerationRequest& request, std::size_t index) {
        encoded_on = std::this_thread::get_id();
        return scripted::bytes_of(request.requests[index].messages[0].contents[0].content);
    };
    const auto engine = edgellm::make_request_engine(std::move(parts), 4, 4);
    auto request = make_request({}, 2);
    request.requests[0].extensions.token_ids.reset();
    request.requests[0].messages = {{"user", {{"text", "hello"}}, "", false, {}, false, "", "", true, false, false}};
    CHECK(engine->submit(request)->get().prompt_token_counts[0] == 5);
    CHECK(encoded_on == std::this_thread::get_id());
}

TEST(submitters_cancels_and_a_shutdown_at_once_lose_nothing) {
    for (int round = 0; round < 6; ++round) {
        const auto script = std::make_shared<Script>();
        PartsWanted wanted;
        wanted.max_kv_tokens = 128;
        wanted.context_cache_tokens = 64;
        const auto engine = make_engine(script, wanted, 40, 8);
        std::atomic<int64_t> taken{0}, refused{0}, ended{0}, terminal_or_cancelled{0};
        std::vector<std::thread> threads;
        for (int thread = 0; thread < 6; ++thread) {
            threads.emplace_back([&, thread] {
                std::mt19937 random(static_cast<uint32_t>(round * 100 + thread));
                for (int i = 0; i < 60; ++i) {
                    const auto size = static_cast<int32_t>(1 + random() % 60);
                    auto request = make_request(make_prompt(static_cast<int32_t>(random() % 5), size),
                                                static_cast<int64_t>(random() % 40));
                    request.temperature = 1.0F;
                    request.requests[0].extensions.cache_domain = std::string(1, random() % 2 == 0 ? 'a' : 'b');
                    std::shared_ptr<RequestHandle> handle;
                    try {
                        handle = engine->submit(std::move(request));
                    } catch (const SubmitRefused&) {
                        ++refused;
                        continue;
                    }
                    ++taken;
                    switch (random() % 5) {
                        case 0: handle->cancel(); break;
                        case 1: handle->stream()->cancel(); break;
                        case 2: engine->cancel(handle->id()); break;
                        default: break;
                    }
                    int terminals = 0;
                    while (auto chunk = handle->stream()->wait_pop(kGenerousMs)) terminals += chunk->finished ? 1 : 0;
                    if (terminals == 1 || (terminals == 0 && handle->stream()->is_cancelled())) ++terminal_or_cancelled;
                    try {
                        handle->get();
                    } catch (const edgellm::Error&) {
                    }
                    ++ended;
                }
            });
        }
        if (round % 2 == 0) {
            CHECK(eventually([&] { return taken > 30; }));
            engine->shutdown(round % 4 == 0 ? ShutdownMode::kCancel : ShutdownMode::kDrain);
        }
        for (std::thread& thread : threads) thread.join();
        CHECK(ended == taken);
        CHECK(terminal_or_cancelled == taken);
        const auto metrics = engine->metrics();
        CHECK(metrics.submitted == taken);
        CHECK(metrics.refused == refused);
        CHECK(metrics.failed == 0);
        CHECK(metrics.completed + metrics.cancelled == taken);
        CHECK(engine->queued() == 0 && engine->resident() == 0);
    }
}

CHECK_MAIN()
