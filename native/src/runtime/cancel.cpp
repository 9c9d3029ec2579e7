#include "sllm/cancel.hpp"

#include <algorithm>
#include <iterator>

namespace sllm {

void CancelController::deliver(std::uint64_t id) {
    const std::scoped_lock lock(mutex_);
    if (id <= watermark_) {
        return; // stale, or 0
    }
    if (state_ != State::idle && id == active_) {
        latch();
    } else if (id > active_) {
        parked_.insert(id);
        if (parked_.size() > most_parked) {
            parked_.erase(std::prev(parked_.end()));
        }
    }
}

void CancelController::refuse(std::uint64_t id) {
    const std::scoped_lock lock(mutex_);
    if (id != active_) {
        raise_watermark(id);
    }
}

bool CancelController::stale(std::uint64_t id) const {
    const std::scoped_lock lock(mutex_);
    return id <= watermark_;
}

CancelController::State CancelController::state() const {
    const std::scoped_lock lock(mutex_);
    return state_;
}

std::size_t CancelController::parked() const {
    const std::scoped_lock lock(mutex_);
    return parked_.size();
}

bool CancelController::enter(std::optional<std::uint64_t> id, Stoppable &engine) {
    const std::scoped_lock lock(mutex_);
    if (state_ != State::idle || (id && *id <= watermark_)) {
        return false;
    }
    state_ = State::preparing;
    active_ = id.value_or(0);
    engine_ = &engine;
    cancelled_ = may_stop_ = stop_called_ = false;
    if (id && parked_.contains(*id)) {
        latch();
    }
    return true;
}

void CancelController::allow_stop() {
    const std::scoped_lock lock(mutex_);
    may_stop_ = true;
    stop_once();
}

void CancelController::begin_decode() {
    const std::scoped_lock lock(mutex_);
    if (state_ == State::preparing) {
        state_ = State::decoding;
    }
    may_stop_ = true;
    stop_once();
}

bool CancelController::cancelled() const {
    const std::scoped_lock lock(mutex_);
    return cancelled_;
}

bool CancelController::seal() {
    const std::scoped_lock lock(mutex_);
    state_ = State::sealed;
    return cancelled_;
}

void CancelController::detach() {
    const std::scoped_lock lock(mutex_);
    raise_watermark(active_);
    state_ = State::idle;
    active_ = 0;
    engine_ = nullptr;
}

void CancelController::latch() {
    if (state_ == State::sealed || cancelled_ || !seams_.hears_cancel(active_)) {
        return;
    }
    cancelled_ = true;
    stop_once();
}

void CancelController::stop_once() {
    if (cancelled_ && may_stop_ && !stop_called_ && state_ != State::sealed) {
        stop_called_ = true;
        engine_->stop();
    }
}

void CancelController::raise_watermark(std::uint64_t id) {
    watermark_ = std::max(watermark_, id);
    parked_.erase(parked_.begin(), parked_.upper_bound(watermark_));
}

} // namespace sllm
