// RequestTicket: the handle of one submitted request. It outlives the engine, and holds nothing of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

#include "engine/request_engine.hpp"

namespace edgellm {

class RequestTicket final : public RequestHandle {
public:
    explicit RequestTicket(std::shared_ptr<StreamChannel> channel) : channel_(std::move(channel)) {}

    uint64_t id() const override { return id_.load(); }
    std::shared_ptr<StreamChannel> stream() const override { return channel_; }
    LLMGenerationResponse get() override;
    bool ready() const override;
    void cancel() override { cancelled_->store(true); }
    bool valid() const override { return true; }

    // Engine side.
    void set_id(uint64_t id) { id_.store(id); }
    std::shared_ptr<const std::atomic<bool>> cancelled() const { return cancelled_; }
    void complete(LLMGenerationResponse response);
    void fail(std::exception_ptr error);

private:
    std::atomic<uint64_t> id_{0};
    const std::shared_ptr<StreamChannel> channel_;
    const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
    mutable std::mutex mutex_;
    std::condition_variable done_;
    std::optional<LLMGenerationResponse> response_;
    std::exception_ptr error_;
};

}  // namespace edgellm
