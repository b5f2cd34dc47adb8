package model

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MostOfRegex bounds the program of a regular expression, in instructions of RE2. Bootstraps of Navarch and Istio set
// re2.max_program_size.error_level to this number, so Envoy refuses a whole route configuration with a larger program.
const MostOfRegex = 32768

// CheckRegex returns an error if Envoy would refuse a regular expression. Envoy's RE2 accepts less than Go's regexp.
// Errors: the pattern does not parse, names a character class that RE2 does not know, or has a program of more than
// MostOfRegex instructions. The estimate of the size is usually too large, so a pattern near the bound may be refused
// needlessly.
func CheckRegex(pattern string) error {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return err
	}
	if name := unknownClass(pattern); name != "" {
		return fmt.Errorf("RE2 knows no character class %q", name)
	}
	if sizeOf(parsed) > MostOfRegex {
		return errors.New("the program is too large: repeat less")
	}
	return nil
}

// unknownClass returns the first name of a character class that RE2 does not know. The result is empty if RE2 knows all
// classes. The pattern must be valid in Go. RE2 knows scripts, and categories of one or two letters, as Unicode writes
// them.
func unknownClass(pattern string) string {
	for {
		_, rest, found := strings.Cut(pattern, `\`)
		if !found || rest == "" {
			return ""
		}
		pattern = rest[1:]
		switch rest[0] {
		case 'Q':
			_, pattern, _ = strings.Cut(pattern, `\E`)
		case 'p', 'P':
			if name, braced := strings.CutPrefix(pattern, "{"); braced {
				name, pattern, _ = strings.Cut(name, "}")
				if name = strings.TrimPrefix(name, "^"); !inRE2(name) {
					return name
				}
			}
		}
	}
}

func inRE2(name string) bool {
	_, category := unicode.Categories[name]
	_, script := unicode.Scripts[name]
	return name == "Any" || script || category && name != "Cn" && name != "LC"
}

// sizeOf estimates the number of instructions of an expression in RE2, which matches bytes. The estimate is usually too
// high. sizeOf stops counting above MostOfRegex.
func sizeOf(re *syntax.Regexp) int {
	// A range beyond ASCII has some 12 instructions. Ranges of large classes share theirs.
	const class, char, alone = 12, 4, 16
	size := 2
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			size += utf8.RuneLen(max(r, 0))
		}
		if re.Flags&syntax.FoldCase != 0 {
			size *= char
		}
	case syntax.OpCharClass:
		for i := 1; i < len(re.Rune); i += 2 {
			if size++; re.Rune[i] >= utf8.RuneSelf && i < 2*alone {
				size += class
			}
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		size += class
	default: // one instruction, or those of the subexpressions
	}
	for _, sub := range re.Sub {
		size = min(size+sizeOf(sub), MostOfRegex+1)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max) + 1
	}
	return min(size, MostOfRegex+1)
}
