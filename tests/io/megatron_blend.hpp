// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Written by megatron_blend.py: the set of each sample of a blend, a for the first.
#pragma once

#include <vector>

namespace espalier::test {

inline const char* const megatron_blend_0 =
    "abaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaabaaabaabaa"
    "abaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaabaaabaabaabaaabaabaaabaabaabaa"
    "abaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaa"
    "abaabaabaaabaabaabaaabaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaaabaabaabaaabaabaabaaabaabaabaa"
    "abaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaa"
    "abaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaaabaabaabaa";

inline const char* const megatron_blend_1 =
    "abababababaababababaabababababaababababaabababababaababababaabababababaababababaabababababaababababa"
    "abababababaababababaabababababaababababaabababababaababababaabababababaababababaabababababaababababa"
    "abababababaababababaabababababaababababaabababababaababababaabababababaababababaabababababaababababa"
    "abababababaababababaabababababaababababaabababababaababababaabababababaababababaabababababaababababa"
    "abababababaababababaabababababaababababaabababababaababababaabababababaababababaabababababaababababa"
    "abababababaababababaabababababaababababaabababababaababababaabababababaababababaabababababaababababa";

inline const char* const megatron_blend_2 =
    "cbcaccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbccc"
    "acbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbccc"
    "acbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbccc"
    "acbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbccc"
    "acbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbccc"
    "acbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbcccacbcccbccc";

inline const char* const megatron_blend_3 =
    "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabca"
    "bcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcab"
    "cabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc"
    "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabca"
    "bcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcab"
    "cabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc";

inline const char* const megatron_blend_4 =
    "bcabcbcbcabcbcbcbcabcbcbcbacbbcbcabcbcbcbcabcbcbcbacbcbcbabcbcbcbcabcbcbcbcabcbcbcbacbbcbcabcbcbcbca"
    "bcbcbcbacbcbcbabcbcbcbcabcbcbcbcabcbcbcbacbbcbcabcbcbcbcabcbcbcbacbcbcbabcbcbcbcabcbcbcbcabcbcbcbacb"
    "bcbcabcbcbcbcabcbcbcbacbcbcbabcbcbcbcabcbcbcbcabcbcbcbacbcbbcabcbcbcbcabcbcbcbacbcbcbabcbcbcbcabcbcb"
    "cbacbcbcbcbacbcbbcabcbcbcbcabcbcbcbacbcbcbabcbcbcbcabcbcbcbacbcbcbcbacbcbbcabcbcbcbcabcbcbcbacbcbcba"
    "bcbcbcbcabcbcbcbacbcbcbcbacbcbbcabcbcbcbcabcbcbcbacbcbcbacbbcbcbcabcbcbcbacbcbcbcbacbcbbcabcbcbcbcab"
    "cbcbcbacbcbcbacbbcbcbcabcbcbcbacbcbcbcbacbcbbcabcbcbcbcabcbcbcbacbcbcbacbbcbcbcabcbcbcbacbcbcbcbacbc";

inline const char* const megatron_blend_5 =
    "abcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrst"
    "abcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrst"
    "abcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrst"
    "abcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrst"
    "abcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrst"
    "abcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrstabcdefghijklmnopqrst";

// Of two sets: tokens of each document, and the documents that 30 samples of 0.5, 0.5 read.
inline const std::vector<int> megatron_sizes_0 = {7, 1, 12, 5, 3, 9, 4};
inline const std::vector<int> megatron_read_0 = {0, 1, 2, 3, 4, 5, 6};
inline const std::vector<int> megatron_sizes_1 = {2, 6, 16, 1, 11};
inline const std::vector<int> megatron_read_1 = {0, 1, 2, 3, 4};

}  // namespace espalier::test
