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
