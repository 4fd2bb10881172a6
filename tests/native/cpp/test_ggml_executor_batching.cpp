// A row's result is bit for bit its own: neither neighbours, threads, chunks of the prompt nor the pages change it.
#include "executor/cpu/cpu_executor.hpp"
#include "executor_harness.hpp"

using namespace harness;
using edgellm::TensorType;

namespace {

struct Case {
    TensorType type;
    KvType kv_type;
    bool portable_kernels;
};

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const KvType kv_type : {KvType::kF16, KvType::kF32}) {
        for (const TensorType type : {TensorType::kQ4_1, TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kF16,
                                      TensorType::kF32, TensorType::kQ5_0})
            all.push_back({type, kv_type, false});
    }
    all.push_back({TensorType::kQ8_0, KvType::kF16, true});
    return all;
}

tiny::Shape shape_of(TensorType type) {
    tiny::Shape shape;
    shape.type = type;
    shape.heads = 6;
    shape.kv_heads = 2;
    shape.hidden = 96;
    shape.intermediate = 160;
    return shape;
}

std::unique_ptr<Executor> make(const Model& model, const Case& one, ExecutorOptions options) {
    options.kv_type = one.kv_type;
    return edgellm::make_cpu_executor(model.file, model.spec, options, one.portable_kernels);
}

// Every position alone, one token a step.
std::vector<float> run_token_by_token(Executor& executor, Sequence& one) {
    std::vector<float> all;
    one.rewind();
    while (one.done < one.tokens.size()) {
        const auto row = step(executor, {one.next(1, RowsWanted::kLast)});
        all.insert(all.end(), row.begin(), row.end());
    }
    return all;
}

template <typename Body>
void for_every_case(Body body) {
    for (const Case& one : cases()) {
        const Model model(tiny::Decoder(shape_of(one.type)));
        body(model, one);
    }
}

}  // namespace

TEST(chunks_of_a_prompt_change_nothing) {
    for_every_case([](const Model& model, const Case& one) {
        const auto executor = make(model, one, small_options());
        Sequence prompt = sequence(tiny::random_tokens(150, 101, 5), 8, 0);
        const auto alone = run_token_by_token(*executor, prompt);
        CHECK(identical(run_whole(*executor, prompt), alone));
        for (const std::size_t chunk : {2U, 3U, 5U, 17U, 64U, 100U}) {
            prompt.rewind();
            std::vector<float> all;
            while (prompt.done < prompt.tokens.size()) {
                const auto count = std::min(chunk, prompt.tokens.size() - prompt.done);
                const auto rows = step(*executor, {prompt.next(count, RowsWanted::kAll)});
                all.insert(all.end(), rows.begin(), rows.end());
            }
            CHECK(identical(all, alone));
        }
    });
}

TEST(neighbours_in_a_step_change_nothing) {
    for_every_case([](const Model& model, const Case& one) {
        const auto executor = make(model, one, small_options());
        std::vector<Sequence> all;
        std::vector<std::vector<float>> alone;
        for (uint32_t i = 0; i < 5; ++i) {
            all.push_back(sequence(tiny::random_tokens(40 + 3 * i, 101, 50 + i), 8, static_cast<int32_t>(i) * 8));
            alone.push_back(run_token_by_token(*executor, all.back()));
        }
        // Prompts and decode rows mixed: each sequence advances at its own pace until all are done.
        std::vector<std::vector<float>> mixed(all.size());
        for (Sequence& sequence : all) sequence.rewind();
        for (std::size_t round = 0;; ++round) {
            std::vector<RowGroup> groups;
            std::vector<std::pair<std::size_t, std::size_t>> taken;
            for (std::size_t i = 0; i < all.size(); ++i) {
                const std::size_t left = all[i].tokens.size() - all[i].done;
                const std::size_t count = std::min(left, (round + i) % 4 == 0 ? std::size_t{7} : std::size_t{i % 3});
                if (count == 0) continue;
                groups.push_back(all[i].next(count, RowsWanted::kAll));
                taken.emplace_back(i, count);
            }
            if (groups.empty()) {
                const bool finished =
                    std::all_of(all.begin(), all.end(), [](const Sequence& s) { return s.done == s.tokens.size(); });
                if (finished) break;
                continue;
            }
            const auto rows = step(*executor, groups);
            auto from = rows.begin();
            for (const auto& [i, count] : taken) {
                mixed[i].insert(mixed[i].end(), from, from + static_cast<std::ptrdiff_t>(count * 101));
                from += static_cast<std::ptrdiff_t>(count * 101);
            }
        }
        for (std::size_t i = 0; i < all.size(); ++i) CHECK(identical(mixed[i], alone[i]));
    });
}

TEST(the_number_of_threads_changes_nothing) {
    for_every_case([](const Model& model, const Case& one) {
        std::vector<float> first;
        for (const int32_t threads : {1, 2, 3, 7}) {
            ExecutorOptions options = small_options();
            options.threads = threads;
            const auto executor = make(model, one, options);
            Sequence prompt = sequence(tiny::random_tokens(90, 101, 5), 8, 0);
            auto rows = run_whole(*executor, prompt);
            const auto single = run_token_by_token(*executor, prompt);
            CHECK(identical(rows, single));
            if (first.empty()) first = rows;
            CHECK(identical(rows, first));
        }
    });
}

TEST(size_and_order_of_pages_change_nothing) {
    for_every_case([](const Model& model, const Case& one) {
        std::vector<float> first;
        for (const int32_t page_tokens : {8, 16, 24, 128, 256}) {
            for (const int32_t page_step : {1, -1, 3}) {
                ExecutorOptions options = small_options();
                options.kv_page_tokens = page_tokens;
                const auto executor = make(model, one, options);
                Sequence prompt = sequence(tiny::random_tokens(130, 101, 5), page_tokens, 40, page_step);
                const auto rows = run_whole(*executor, prompt);
                if (first.empty()) first = rows;
                CHECK(identical(rows, first));
            }
        }
    });
}

TEST(a_shared_prefix_is_read_in_place) {
    for_every_case([](const Model& model, const Case& one) {
        const auto executor = make(model, one, small_options());
        Sequence whole = sequence(tiny::random_tokens(40, 101, 5), 8, 0);
        const auto expected = run_token_by_token(*executor, whole);
        // Two sequences read pages 0 to 2 and write pages of their own in one step.
        Sequence left = whole;
        Sequence right = whole;
        left.pages = {0, 1, 2, 30, 31};
        right.pages = {0, 1, 2, 40, 41};
        left.done = right.done = 24;
        const auto rows = step(*executor, {left.next(16, RowsWanted::kAll), right.next(16, RowsWanted::kAll)});
        const auto tail = std::span(expected).subspan(24 * 101);
        CHECK(identical(std::span(rows).first(tail.size()), tail));
        CHECK(identical(std::span(rows).subspan(tail.size()), tail));
    });
}

TEST(values_of_later_positions_never_leak) {
    const Case one{TensorType::kF32, KvType::kF32, false};
    const Model model(tiny::Decoder(shape_of(one.type)));
    const auto executor = make(model, one, small_options());
    Sequence clean = sequence(tiny::random_tokens(20, 101, 5), 8, 0);
    const auto expected = run_whole(*executor, clean);
    // The same pages, first filled by another sequence to their ends.
    Sequence other = sequence(tiny::random_tokens(24, 101, 6), 8, 0);
    (void)run_whole(*executor, other);
    CHECK(identical(run_whole(*executor, clean), expected));
}

CHECK_MAIN()
