#include "engine/request_ticket.hpp"

#include <utility>

namespace edgellm {

LLMGenerationResponse RequestTicket::get() {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return response_.has_value() || error_ != nullptr; });
    if (error_ != nullptr) std::rethrow_exception(error_);
    return *response_;
}

bool RequestTicket::ready() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return response_.has_value() || error_ != nullptr;
}

void RequestTicket::complete(LLMGenerationResponse response) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        response_ = std::move(response);
    }
    done_.notify_all();
    channel_->raise_signal();
}

void RequestTicket::fail(std::exception_ptr error) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        error_ = std::move(error);
    }
    done_.notify_all();
    channel_->raise_signal();
}

}  // namespace edgellm
