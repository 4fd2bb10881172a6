// The cache by itself: what it finds, what it counts, what it gives up and what it never does.
#include "check.hpp"

#include "engine/context_cache.hpp"
#include "engine/kv_pages.hpp"

#include <map>
#include <random>
#include <vector>

using edgellm::CachePlan;
using edgellm::ContextCache;
using edgellm::ContextCacheConfig;
using edgellm::ContextCacheLookupPolicy;
using edgellm::KvPagePool;
using edgellm::PageList;

namespace {

constexpr int32_t kPageTokens = 4;

ContextCacheConfig config(int64_t max_records = 1024) {
    ContextCacheConfig made;
    made.enabled = true;
    made.max_records = max_records;
    return made;
}

std::vector<int32_t> tokens(int32_t first, int32_t count) {
    std::vector<int32_t> made;
    for (int32_t i = 0; i < count; ++i) made.push_back(first + i);
    return made;
}

PageList take_pages(KvPagePool& pool, std::size_t token_count) {
    PageList pages(pool);
    while (pages.size() * kPageTokens < token_count) pages.adopt(*pool.take());
    return pages;
}

void publish(KvPagePool& pool, ContextCache& cache, const std::vector<int32_t>& record, const char* domain = "") {
    const PageList pages = take_pages(pool, record.size());
    cache.publish(domain, record, pages.pages());
}

CachePlan plan(ContextCache& cache, const std::vector<int32_t>& prompt, const char* domain = "") {
    return cache.plan(domain, prompt, 1, ContextCacheLookupPolicy::kUseCache);
}

}  // namespace

TEST(pages_are_free_again_when_the_last_holder_goes) {
    KvPagePool pool(3, kPageTokens);
    PageList first = take_pages(pool, 12);
    CHECK(!pool.take());
    {
        PageList second(pool);
        second.share(first.pages()[0]);
        first.clear();
        CHECK(pool.free_pages().size() == 2);
        PageList third = std::move(second);
        CHECK(pool.holders(third.pages()[0]) == 1);
    }
    CHECK(pool.free_pages().size() == 3);
}

TEST(the_longest_shared_prefix_is_found_full_pages_and_part_of_one) {
    KvPagePool pool(32, kPageTokens);
    ContextCache cache(pool, config());
    publish(pool, cache, tokens(0, 11));
    CHECK(plan(cache, tokens(0, 20)).reused_tokens == 11);
    auto prompt = tokens(0, 9);
    prompt.push_back(99);
    const CachePlan found = plan(cache, prompt);
    CHECK(found.reused_tokens == 9 && found.shared_pages.size() == 2 && found.copy_tokens == 1 &&
          found.copy_source.size() == 1);
    CHECK(plan(cache, tokens(1, 9)).reused_tokens == 0);
    CHECK(plan(cache, tokens(0, 11)).reused_tokens == 10);  // one is left to compute
    CHECK(plan(cache, tokens(0, 8)).reused_tokens == 7);
    CHECK(plan(cache, tokens(0, 1)).reused_tokens == 0);
}

TEST(a_longer_record_takes_the_place_of_its_beginning) {
    KvPagePool pool(32, kPageTokens);
    ContextCache cache(pool, config());
    publish(pool, cache, tokens(0, 6));
    publish(pool, cache, tokens(0, 10));
    CHECK(cache.metrics().current_records == 1);
    CHECK(32 - static_cast<int>(pool.free_pages().size()) == 3);
    publish(pool, cache, tokens(0, 7));
    const auto metrics = cache.metrics();
    CHECK(metrics.publication_attempts == 3 && metrics.committed_publications == 2 &&
          metrics.existing_publications == 1);
    CHECK(metrics.published_endpoints == 2 && metrics.evicted_records == 0);
}

TEST(branches_share_their_stem) {
    KvPagePool pool(32, kPageTokens);
    ContextCache cache(pool, config());
    for (int32_t branch = 0; branch < 3; ++branch) {
        auto record = tokens(0, 8);
        record.push_back(100 + branch);
        publish(pool, cache, record);
    }
    CHECK(cache.metrics().current_records == 3);
    CHECK(32 - static_cast<int>(pool.free_pages().size()) == 2 + 3);
}

TEST(domains_do_not_see_each_other) {
    KvPagePool pool(32, kPageTokens);
    ContextCache cache(pool, config());
    publish(pool, cache, tokens(0, 9), "a");
    CHECK(plan(cache, tokens(0, 9), "b").reused_tokens == 0);
    CHECK(plan(cache, tokens(0, 9), "").reused_tokens == 0);
    CHECK(plan(cache, tokens(0, 9), "a").reused_tokens == 8);
}

TEST(the_least_recently_used_page_goes_first_from_the_end_of_its_record) {
    KvPagePool pool(6, kPageTokens);
    ContextCache cache(pool, config());
    publish(pool, cache, tokens(0, 12));
    publish(pool, cache, tokens(100, 12));
    plan(cache, tokens(0, 13));
    CHECK(cache.reclaim_page());
    CHECK(plan(cache, tokens(0, 13)).reused_tokens == 12);
    CHECK(plan(cache, tokens(100, 13)).reused_tokens == 8);
    CHECK(cache.metrics().evicted_records == 0);
    plan(cache, tokens(0, 13));
    CHECK(cache.reclaim_page() && cache.reclaim_page());
    CHECK(cache.metrics().evicted_records == 1 && cache.metrics().current_records == 1);
    CHECK(cache.metrics().reclaimed_base_kv_pages == 3);
    for (int i = 0; i < 3; ++i) CHECK(cache.reclaim_page());
    CHECK(!cache.reclaim_page());
    CHECK(pool.free_pages().size() == 6);
}

TEST(pages_in_use_are_never_given_away) {
    KvPagePool pool(6, kPageTokens);
    ContextCache cache(pool, config());
    publish(pool, cache, tokens(0, 12));
    publish(pool, cache, tokens(100, 12));
    const CachePlan used = plan(cache, tokens(0, 13));
    for (int i = 0; i < 3; ++i) CHECK(cache.reclaim_page());
    for (const int32_t page : used.shared_pages.pages()) CHECK(pool.holders(page) >= 1);
    CHECK(!cache.reclaim_page());  // what is left is in use
    for (const int32_t page : used.shared_pages.pages()) CHECK(pool.holders(page) == 1);
    CHECK(pool.free_pages().size() == 3);
}

TEST(pages_that_only_the_cache_holds_are_trimmed_to_a_number) {
    KvPagePool pool(16, kPageTokens);
    ContextCache cache(pool, config());
    for (int32_t first = 0; first < 400; first += 100) publish(pool, cache, tokens(first, 12));
    CHECK(pool.kept_alone() == 12);
    const CachePlan used = plan(cache, tokens(0, 13));
    CHECK(pool.kept_alone() == 9);
    cache.trim(4);
    CHECK(pool.kept_alone() == 4 && pool.free_pages().size() == 9);
    CHECK(plan(cache, tokens(300, 13)).reused_tokens == 12);
    cache.trim(0);
    CHECK(pool.kept_alone() == 0 && pool.free_pages().size() == 13);
    CHECK(plan(cache, tokens(0, 13)).reused_tokens == 12);  // in use: stays
}

TEST(the_source_of_a_copy_is_held_until_it_was_copied) {
    KvPagePool pool(2, kPageTokens);
    ContextCache cache(pool, config());
    publish(pool, cache, tokens(0, 6));
    CachePlan used = plan(cache, tokens(0, 9));
    CHECK(used.copy_tokens == 2);
    CHECK(!cache.reclaim_page());
    CHECK(pool.free_pages().empty());
    used = CachePlan{};
    CHECK(pool.free_pages().size() == 2);
}

TEST(records_are_bounded_and_the_oldest_unused_goes) {
    KvPagePool pool(32, kPageTokens);
    ContextCache cache(pool, config(2));
    publish(pool, cache, tokens(0, 5));
    publish(pool, cache, tokens(100, 5));
    plan(cache, tokens(0, 6));
    publish(pool, cache, tokens(200, 5));
    CHECK(cache.metrics().current_records == 2);
    CHECK(plan(cache, tokens(0, 6)).reused_tokens == 5);
    CHECK(plan(cache, tokens(100, 6)).reused_tokens == 0);
}

TEST(a_disabled_cache_keeps_nothing) {
    KvPagePool pool(8, kPageTokens);
    ContextCache cache(pool, ContextCacheConfig());
    publish(pool, cache, tokens(0, 8));
    CHECK(pool.free_pages().size() == 8);
    CHECK(plan(cache, tokens(0, 8)).reused_tokens == 0);
    CHECK(cache.metrics().admitted_sequences == 0);
}

TEST(random_use_agrees_with_a_plain_list_of_records) {
    std::mt19937 random(11);
    const auto pick = [&](int32_t count) {
        return static_cast<int32_t>(static_cast<uint32_t>(random()) % static_cast<uint32_t>(count));
    };
    KvPagePool pool(4000, kPageTokens);
    std::vector<std::vector<int32_t>> records;
    {
        ContextCache cache(pool, config(1 << 20));
        for (int round = 0; round < 1500; ++round) {
            std::vector<int32_t> prompt;
            for (int32_t i = 1 + pick(16); i > 0; --i) prompt.push_back(pick(2));
            std::size_t longest = 0;
            for (const auto& record : records) {
                std::size_t shared = 0;
                while (shared < record.size() && shared < prompt.size() && record[shared] == prompt[shared]) ++shared;
                longest = std::max(longest, shared);
            }
            CHECK(plan(cache, prompt).reused_tokens == static_cast<int32_t>(std::min(longest, prompt.size() - 1)));
            publish(pool, cache, prompt);
            records.push_back(prompt);
        }
        CHECK(cache.metrics().hit_sequences > 1000);
    }
    CHECK(pool.free_pages().size() == 4000);
}

CHECK_MAIN()
