package walk

import "testing"

// A refusal names the objects and fields behind Envoy's names of rules.
func TestTextsOfRefusals(t *testing.T) {
	for _, c := range []struct {
		of   Refusal
		want string
	}{
		{Refusal{By: "ns[a]-policy[p]-rule[1]"}, "denied by AuthorizationPolicy a/p spec.rules[1]"},
		{Refusal{By: "istio-ext-authz-oauth2-prox-ns[istio-system]-policy[ext]-rule[0]-deny-due-to-bad-CUSTOM-action"},
			"denied by AuthorizationPolicy istio-system/ext spec.rules[0], whose provider oauth2-prox cannot be used"},
		{Refusal{By: "istio-ext-authz-x-ns[a]-policy[p]-rule[0]"}, "denied by AuthorizationPolicy a/p spec.rules[0], by provider x"},
		{Refusal{By: "own"}, "denied by own"},
		{Refusal{By: "xns[a]-policy[p]-rule[1]"}, "denied by xns[a]-policy[p]-rule[1]"},
		{Refusal{Of: []string{"ns[a]-policy[p]-rule[0]", "ns[a]-policy[p]-rule[1]", "ns[b]-policy[q]-rule[0]", "own"}},
			"no rule of AuthorizationPolicy a/p, AuthorizationPolicy b/q, own allows it"},
		{Refusal{}, "a policy could not be enforced, so all requests are refused"},
		{Refusal{Closing: []string{"AuthorizationPolicy a/p"}}, "AuthorizationPolicy a/p cannot be enforced, so all requests are refused"},
	} {
		if got := c.of.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
