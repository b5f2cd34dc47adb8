package model

import (
	"errors"
	"fmt"
	"testing"

	"navarch.io/navarch/store/problem"
)

// A problem is attributed to the record and the field in the error's data, never to the error's text.
func TestProblemOf(t *testing.T) {
	rule, service := Key{Kind: KindDestinationRule, Namespace: "shop", Name: "r"}, Key{Kind: KindService, Namespace: "shop", Name: "web"}
	within := problem.Within("match[0]", problem.Within("headers[x: y]", errors.New("is odd: very")))
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a field":                     {Fault(rule, problem.Invalid, "spec", problem.Atf("host", "is odd: very")), "DestinationRule shop/r: spec.host: is odd: very"},
		"fields within fields":        {Fault(rule, problem.Invalid, "spec.http[0]", within), "DestinationRule shop/r: spec.http[0].match[0].headers[x: y]: is odd: very"},
		"the whole object":            {Fault(rule, problem.Invalid, "", errors.New("is odd")), "DestinationRule shop/r: is odd"},
		"something is said around it": {fmt.Errorf("listener x: %w", Fault(rule, problem.Invalid, "spec", errors.New("is odd"))), "DestinationRule shop/r: spec: is odd"},
		"it is a problem already":     {Fault(service, problem.Invalid, "spec", Fault(rule, problem.Invalid, "spec.a", errors.New("is odd"))), "DestinationRule shop/r: spec.a: is odd"},
		"a text like a problem":       {errors.New("DestinationRule shop/r: spec.host: is odd"), "Service shop/web: spec: DestinationRule shop/r: spec.host: is odd"},
		"a path that is said around":  {Fault(rule, problem.Invalid, "spec", fmt.Errorf("cluster x: %w", problem.Atf("a", "is odd"))), "DestinationRule shop/r: spec: cluster x: a: is odd"},
	} {
		if got := ProblemOf(c.err, service); got.Error() != c.want || got.Code != problem.Invalid || got.Severity != problem.Error {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
	if err := problem.Within("a", nil); err != nil {
		t.Error(err)
	}
}
