package model

import (
	"fmt"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"
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

// costOf is the cost of one expression.
func costOf(pattern string) int { return new(RegexCosts).of(pattern) }

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
		if got := costOf(pattern); (got < 30) != cheap {
			t.Errorf("%.50s: %d", pattern, got)
		}
	}
	if got := costOf(`.*a.{80}`); got > MostRegexCost {
		t.Errorf("one of the expressions with many states: %d", got)
	}
}

// rulesWith are http rules with one regular expression each.
func rulesWith(n int, pattern string) (all []*networkingv1.HTTPRoute) {
	for i := range n {
		text := &networkingv1.StringMatch{MatchType: &networkingv1.StringMatch_Regex{Regex: strings.ReplaceAll(pattern, "#", fmt.Sprint(i))}}
		all = append(all, &networkingv1.HTTPRoute{Match: []*networkingv1.HTTPMatchRequest{{Uri: text}}})
	}
	return all
}

// The costs of a VirtualService are computed in bounded work. It suffices for many usual expressions, and expressions
// beyond it count as expensive.
// Promise: security-gateways.md#regular-expressions
func TestRegexCostsAreBounded(t *testing.T) {
	for pattern, fits := range map[string]bool{`^/api/v[0-9]+/items/#(/.*)?$`: true, `(a|b)?\pL{15}`: false, `(?i)[B-\x{1e942}]#`: false} {
		var costs RegexCosts
		sum := 0
		for _, rule := range rulesWith(900, pattern) {
			match, _ := costs.Rule(rule)
			sum += match
		}
		if fits != (sum <= MostRegexCost) || costs.steps > allSteps+4*mostSteps {
			t.Errorf("%s: cost %d, %d steps", pattern, sum, costs.steps)
		}
	}
	var costs RegexCosts
	for i, rule := range rulesWith(5000, `a`) { // what Envoy evaluates for a selected rule is no cost of later rules
		rule.Match, rule.CorsPolicy = nil, &networkingv1.CorsPolicy{AllowOrigins: []*networkingv1.StringMatch{
			{MatchType: &networkingv1.StringMatch_Regex{Regex: `(a|b)?\pL{15}`}}}}
		if _, action := costs.Rule(rule); i == 0 && action > 10 || i == 4999 && action < manyStates {
			t.Errorf("action of rule %d: %d", i, action)
		}
	}
	if costs.steps > allSteps+4*mostSteps {
		t.Errorf("actions: %d steps", costs.steps)
	}
}

// A range that folds characters beyond ASCII, and classes of Unicode, count more than their bytes.
func TestRegexWork(t *testing.T) {
	for pattern, least := range map[string]int{`(?i)[B-\x{1e942}]`: 25_000, `a(?si:[B-𞥂])`: 25_000, `\pL\PN`: 190, `(?:[B-\x{1e942}])`: 50, `(?i)[a-z]-`: 50} {
		if got := RegexWork(pattern); got < least || got > 2*least+50 {
			t.Errorf("%s: %d, want %d", pattern, got, least)
		}
	}
}

// The costs of a VirtualService are computed in bounded time.
func BenchmarkRegexCost(b *testing.B) {
	for _, pattern := range []string{`^/api/v[0-9]+/items/#(/.*)?$`, `(a|b)?\pL{15}`} {
		b.Run("900 of "+pattern, func(b *testing.B) {
			rules := rulesWith(900, pattern)
			for b.Loop() {
				var costs RegexCosts
				for _, rule := range rules {
					costs.Rule(rule)
				}
			}
		})
	}
	for _, pattern := range []string{`.*`, `^/api/v[0-9]+/.*`, `(a|b)*a(a|b){16}`, `(.*a.{0,30}){20}`, "(?i)^(" + strings.Repeat("abcdefg|hijklmn|", 60) + ")$"} {
		b.Run(pattern[:min(len(pattern), 20)], func(b *testing.B) {
			for b.Loop() {
				costOf(pattern)
			}
		})
	}
}
