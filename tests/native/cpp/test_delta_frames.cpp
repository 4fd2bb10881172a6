// DeltaFrames and FrameSocket: chunks leave in order whoever sends them, nothing waits, nothing is lost.
#include "contract/delta_frames.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "contract/stream_channel.hpp"

using edgellm::delta_frame;
using edgellm::DeltaFrames;
using edgellm::FinishReason;
using edgellm::FrameSocket;
using edgellm::StreamChannel;
using edgellm::StreamChunk;

namespace {

constexpr int64_t kMuchCredit = 1 << 20;

StreamChunk chunk(const std::string& text, std::vector<int32_t> token_ids = {1}) {
    StreamChunk made;
    made.text = text;
    made.token_ids = std::move(token_ids);
    return made;
}

StreamChunk last_chunk() {
    StreamChunk made = chunk("end");
    made.finished = true;
    made.reason = FinishReason::kEndId;
    return made;
}

// Both ends of a connection; the sending one belongs to a FrameSocket too.
struct Connection {
    Connection() {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        socket = FrameSocket::create(ends[0]);
    }
    ~Connection() {
        close(ends[0]);
        if (ends[1] >= 0) close(ends[1]);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // Everything that is there now.
    std::string received() const {
        std::string all;
        char piece[4096];
        ssize_t count = 0;
        while ((count = recv(ends[1], piece, sizeof piece, MSG_DONTWAIT)) > 0) all.append(piece, static_cast<size_t>(count));
        return all;
    }

    int ends[2] = {-1, -1};
    std::shared_ptr<FrameSocket> socket;
};

}  // namespace

TEST(a_frame_is_its_length_and_a_msgpack_array) {
    const std::string frame = delta_frame(300, chunk("hé", {5, 200, 70'000, -1}));
    const std::string expected("\x17\x00\x00\x00"          // 23 bytes follow
                               "\x94\x18\xcd\x01\x2c"      // four fields: 24, 300
                               "\xa3h\xc3\xa9"             // the text
                               "\x94\x05\xcc\xc8\xce\x00\x01\x11\x70\xd2\xff\xff\xff\xff",
                               4 + 5 + 4 + 14);
    CHECK(frame == expected);
}

TEST(only_chunks_of_text_are_forwarded) {
    const Connection connection;
    DeltaFrames frames(connection.socket, 7, kMuchCredit);
    CHECK(!frames.send(last_chunk()));
    StreamChunk with_logprobs = chunk("a");
    with_logprobs.logprobs.resize(1);
    CHECK(!frames.send(with_logprobs));
    CHECK(!frames.send(chunk(std::string(1 << 20, 'x'))));
    CHECK(connection.received().empty());
    CHECK(frames.send(chunk("a")));
    CHECK(connection.received() == delta_frame(7, chunk("a")));
}

TEST(credit_is_shared_and_bounds_what_is_under_way) {
    const Connection connection;
    DeltaFrames frames(connection.socket, 7, 2);
    CHECK(frames.send(chunk("a")));
    CHECK(frames.take_credit());
    CHECK(!frames.send(chunk("b")));
    CHECK(!frames.take_credit());
    frames.add_credit(1);
    CHECK(frames.send(chunk("b")));
    CHECK(connection.received() == delta_frame(7, chunk("a")) + delta_frame(7, chunk("b")));
}

TEST(a_channel_forwards_from_the_resumption_until_a_chunk_waits_for_the_reader) {
    const Connection connection;
    const auto channel = StreamChannel::create();
    channel->forward_to(std::make_shared<DeltaFrames>(connection.socket, 7, 1));
    CHECK(channel->push(chunk("a")));
    CHECK(connection.received().empty());
    channel->resume_forwarding();  // too early: what waits goes first
    CHECK(channel->push(chunk("b")));
    CHECK(channel->try_pop()->text == "a");
    CHECK(channel->try_pop()->text == "b");
    channel->resume_forwarding();
    CHECK(channel->push(chunk("c")));
    CHECK(connection.received() == delta_frame(7, chunk("c")));
    CHECK(!channel->try_pop());
    CHECK(channel->push(chunk("d")));  // no credit is left
    CHECK(channel->push(last_chunk()));
    CHECK(channel->try_pop()->text == "d");
    CHECK(channel->try_pop()->text == "end");
    CHECK(connection.received().empty());
}

TEST(a_cancelled_channel_forwards_nothing) {
    const Connection connection;
    const auto channel = StreamChannel::create();
    channel->forward_to(std::make_shared<DeltaFrames>(connection.socket, 7, kMuchCredit));
    channel->resume_forwarding();
    channel->cancel();
    CHECK(!channel->push(chunk("a")));
    CHECK(connection.received().empty());
}

TEST(a_full_socket_keeps_whole_frames_in_order_and_never_waits) {
    const Connection connection;
    std::string expected;
    size_t refused = 0;
    for (int index = 0; index < 5000; ++index) {
        const std::string frame = delta_frame(7, chunk("piece " + std::to_string(index)));
        if (!connection.socket->try_send(frame)) {
            ++refused;
            connection.socket->send(frame);
        }
        expected += frame;
    }
    CHECK(refused > 0);
    CHECK(connection.socket->kept_bytes() > 0);
    std::string received;
    while (!connection.socket->flush()) received += connection.received();
    received += connection.received();
    CHECK(received == expected);
    CHECK(connection.socket->kept_bytes() == 0);
}

TEST(frames_larger_than_the_socket_are_finished_by_flushing) {
    const Connection connection;
    const std::string large(4 << 20, 'x');
    connection.socket->send(large);
    CHECK(connection.socket->kept_bytes() > 0);
    std::string received;
    while (!connection.socket->flush()) received += connection.received();
    received += connection.received();
    CHECK(received == large);
}

TEST(nothing_is_kept_for_a_peer_that_is_gone) {
    Connection connection;
    close(connection.ends[1]);
    connection.ends[1] = -1;
    connection.socket->send("anything");
    CHECK(connection.socket->kept_bytes() == 0);
    CHECK(!connection.socket->try_send("more"));
    CHECK(connection.socket->flush());
}

TEST(frames_of_many_threads_stay_whole) {
    const Connection connection;
    constexpr int kThreads = 4;
    constexpr int kFrames = 2000;
    std::atomic<int> working{kThreads};
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; ++number) {
        threads.emplace_back([&, number] {
            const std::string frame(100, static_cast<char>('a' + number));
            for (int index = 0; index < kFrames; ++index) {
                if (index % 2 == 0 || !connection.socket->try_send(frame)) connection.socket->send(frame);
            }
            --working;
        });
    }
    std::string received;
    while (working > 0 || !connection.socket->flush()) received += connection.received();
    for (std::thread& thread : threads) thread.join();
    received += connection.received();
    CHECK(received.size() == size_t{kThreads} * kFrames * 100);
    for (size_t begin = 0; begin < received.size(); begin += 100) {
        CHECK(received.compare(begin, 100, std::string(100, received[begin])) == 0);
    }
}

CHECK_MAIN()
