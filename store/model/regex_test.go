package model

import (
	"strings"
	"testing"
)

// Expressions that Go takes and Envoy refuses are refused. TestRegexesThatEnvoyRefuses (push/plan) asks Envoy.
// Promise: security-gateways.md#make-a-gateway-fail
func TestCheckRegex(t *testing.T) {
	for pattern, good := range map[string]bool{
		`/a/[^/]+/b.*`: true, `(?i)^x{1,1000}$`: true, `\p{L}+\p{^Greek}\PN\p{Any}`: true, `\Q\p{Letter}\E`: true, `\\p{Letter}`: true,
		`[\p{Lu}0-9]{3}`: true, `.{0,1000}`: true,
		`(`: false, `\p{Letter}`: false, `\P{^greek}`: false, `[\p{Cn}]`: false, `\p{LC}`: false, `\Qa\E\p{ASCII}`: false,
		`\pL{1000}`: false, `((a{0,30}){0,30})` + strings.Repeat(`[^a]{1000}`, 20): false, strings.Repeat(`a{1000}`, 100): false,
	} {
		if err := CheckRegex(pattern); (err == nil) != good {
			t.Errorf("%.40s: %v", pattern, err)
		}
	}
}

// Usual expressions cost little, and those for which RE2 executes its whole program cost its size.
func TestRegexCost(t *testing.T) {
	words := "(?i)^(" + strings.Repeat("abcdefg|hijklmn|opqrstu|", 40) + "vwxyz)$"
	for pattern, cheap := range map[string]bool{
		`.*`: true, `^/api/v[0-9]+/.*`: true, `/items/[0-9]+(/.*)?`: true, `^(.*?;)?(user=jason)(;.*)?$`: true, words: true,
		`[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}`: true, `(?i).*(iphone|android|mobile).*`: true,
		`https://.*[.]example[.]com(:[0-9]+)?`: true, `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`: true,
		`.*\.(js|css|png|jpe?g|gif|svg|woff2?)$`: true, `.{0,500}`: true, `(?i)^/(en|de|fr)(-[a-z]{2})?/.{1,64}$`: true,
		`(a|b)*a(a|b){16}`: false, `(.*a.{0,30}){20}`: false, `.*(x.{50}y|y.{60}x).*`: false, strings.Repeat(`[ab]{900}`, 9): false,
	} {
		if got := RegexCost(pattern); (got < 30) != cheap {
			t.Errorf("%.50s: %d", pattern, got)
		}
	}
	if got := RegexCost(`.*a.{80}`); got > MostRegexCost {
		t.Errorf("one of the expressions with many states: %d", got)
	}
}

// The costs of a VirtualService are computed in bounded time.
func BenchmarkRegexCost(b *testing.B) {
	for _, pattern := range []string{`.*`, `^/api/v[0-9]+/.*`, `(a|b)*a(a|b){16}`, `(.*a.{0,30}){20}`, "(?i)^(" + strings.Repeat("abcdefg|hijklmn|", 60) + ")$"} {
		b.Run(pattern[:min(len(pattern), 20)], func(b *testing.B) {
			for b.Loop() {
				RegexCost(pattern)
			}
		})
	}
}
