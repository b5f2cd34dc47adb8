package model

import (
	"strings"
	"unicode/utf8"
)

// MostRegexWork bounds the sum of RegexWork for the regular expressions of one object. They are then parsed within some
// 60 ms.
const MostRegexWork = 500_000

// Costs of parsing, in units of 0.1 microseconds of a processor.
const (
	workBase   = 50     // of any expression, besides one unit for each byte
	workClass  = 70     // of a class of Unicode, such as \pL
	workFolded = 25_000 // of a range beyond ASCII whose letters match in both cases: each of its characters is visited
)

// RegexWork estimates the time to parse a regular expression without parsing it. The unit is 0.1 microseconds of a
// processor.
func RegexWork(pattern string) int {
	work := workBase + len(pattern) + workClass*(strings.Count(pattern, `\p`)+strings.Count(pattern, `\P`))
	if folds(pattern) && beyondASCII(pattern) {
		work += workFolded * strings.Count(pattern, "-")
	}
	return work
}

// folds reports whether a pattern has a group of flags with i.
func folds(pattern string) bool {
	for {
		_, rest, found := strings.Cut(pattern, "(?")
		if !found {
			return false
		}
		flags := strings.TrimLeft(rest, "msUi-")
		if strings.Contains(rest[:len(rest)-len(flags)], "i") {
			return true
		}
		pattern = rest
	}
}

// beyondASCII reports whether a pattern may have characters beyond ASCII, also as escapes.
func beyondASCII(pattern string) bool {
	return strings.Contains(pattern, `\x`) || strings.ContainsFunc(pattern, func(r rune) bool { return r >= utf8.RuneSelf })
}
