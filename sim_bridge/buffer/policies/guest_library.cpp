// SPDX-License-Identifier: MIT
// Compiled on the user's machine with a policy from outside (sim_bridge/builds.py): FORETAIL_GUEST_TYPE in the
// header FORETAIL_GUEST_HEADER, under the name FORETAIL_GUEST_NAME. policies.cpp opens the library.
#include <exception>
#include <new>

#include "buffer/policies/any_policy.hpp"
#include "buffer/policies/policies.hpp"

// After these, which it may use.
#include FORETAIL_GUEST_HEADER

namespace foretail::buffer {

namespace {

using GuestType = FORETAIL_GUEST_TYPE;
static_assert(std::is_convertible_v<GuestType*, PolicyTraits*>,
              "a policy must derive publicly from foretail::buffer::PolicyTraits");
static_assert(!GuestType::pushes_out && !GuestType::expels, "a policy decides arrivals: only lqd and occamy push out");

/// Throws what is being handled, as a refusal that names the policy.
[[noreturn]] void refuse_guest() {
    const std::string failed = std::string("the policy ") + FORETAIL_GUEST_NAME + " throws ";
    try {
        throw;
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& error) {
        throw std::invalid_argument(failed + '"' + error.what() + "\": mend its header");
    } catch (...) {
        throw std::invalid_argument(failed + "what is not a std::exception: mend its header");
    }
}

struct Guest final : GuestType {
    template <class... Made>
        requires(sizeof...(Made) != 1 && std::is_constructible_v<GuestType, Made...>)
    explicit Guest(Made&&... made) try : GuestType(std::forward<Made>(made)...) {
    } catch (...) {
        refuse_guest();
    }
    static constexpr std::string_view name = FORETAIL_GUEST_NAME;

    template <class Own = GuestType>
    void about_to_change(QueueIndex queue, Tick time, Bytes length)
        requires requires(Own& own) { own.about_to_change(queue, time, length); }
    {
        try {
            static_cast<Own&>(*this).about_to_change(queue, time, length);
        } catch (...) {
            refuse_guest();
        }
    }

    template <class Queues, class... Context>
    [[nodiscard]] Outcome decide(const Arrival& arrival, const Queues& queues, Context&&... context) {
        Outcome outcome{};
        try {
            outcome = GuestType::decide(arrival, queues, std::forward<Context>(context)...);
        } catch (...) {
            refuse_guest();
        }
        if (outcome == Outcome::accepted && !queues.fits(arrival.size)) {
            throw std::invalid_argument("the policy " + std::string(name) +
                                        " accepts a packet that does not fit: let it ask queues.fits(arrival.size)");
        }
        if (outcome >= Outcome::pushed_out) {
            throw std::invalid_argument(
                "the policy " + std::string(name) +
                (outcome == Outcome::pushed_out
                     ? " answers pushed_out, which says what becomes of a queued packet: let it answer "
                     : " answers no Outcome: let it answer ") +
                "accepted, over_threshold, predicted or buffer_full");
        }
        return outcome;
    }
};

}  // namespace

/// The policy; null for a program with another layout. All else is hidden: several such libraries, each with a Guest of
/// its own, live in one process.
extern "C" [[gnu::visibility("default")]] const KnownPolicy* foretail_guest_policy(const std::size_t* layout) {
    return std::ranges::equal(guest_layout, std::span(layout, guest_layout.size())) ? &PolicyOf<Guest>::known : nullptr;
}

}  // namespace foretail::buffer
