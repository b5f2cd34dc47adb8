package edge

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// The judge accepts the answers of all states that may be in effect during a request, and no others.
func TestJudge(t *testing.T) {
	s := newSite(&Mesh{Options: Options{Net: "127.9.9"}}, 0)
	s.route(route{service: "a", weight: 100}) // edition 1: .10 and .11
	s.route(route{service: "b", weight: 100}) // edition 2: .18 and .19
	s.push(true)
	s.services["b"].pair = 1
	s.push(false) // edition 2: .20 and .21
	s.serial = 7
	good := func(edition, last int) answer {
		return answer{status: 200, edition: edition, ip: fmt.Sprintf("127.9.9.%d", last), serial: 7}
	}
	absent := answer{status: 503, body: "no healthy upstream"}
	old := good(1, 10)
	old.serial = 6
	for name, c := range map[string]struct {
		from, until int // states
		a           answer
		fresh       bool
		want        string // part of the reason; "": accepted
		permitted   bool
	}{
		"before the change":              {0, 2, good(1, 10), false, "", false},
		"after the change":               {0, 2, good(2, 18), false, "", false},
		"new edition, old backend":       {0, 2, good(2, 10), false, "edition 2 from backend 127.9.9.10", false},
		"old edition, new backend":       {0, 2, good(1, 18), false, "edition 1 from backend", false},
		"older edition once it is over":  {1, 2, good(1, 10), false, "edition 1 from backend", false},
		"edition that is still to come":  {0, 1, good(2, 18), false, "edition 2 from backend", false},
		"deleted service":                {1, 3, absent, false, "", true},
		"503 before the deletion":        {0, 2, absent, false, "status 503: no healthy upstream", false},
		"503 once it is there again":     {3, 4, absent, false, "status 503", false},
		"endpoints before the deletion":  {3, 4, good(2, 18), false, "from backend", false},
		"endpoints of the new service":   {3, 4, good(2, 20), false, "", false},
		"404":                            {0, 1, answer{status: 404}, false, "status 404", false},
		"reset":                          {0, 1, answer{err: errors.New("reset")}, false, "reset", false},
		"reset while deleted":            {1, 4, answer{err: errors.New("reset")}, false, "reset", false},
		"new connection, old key":        {0, 1, old, true, "certificate 6, which 7 has replaced", false},
		"kept connection of the old key": {0, 1, old, false, "", false},
	} {
		all := s.states
		s.states = all[:c.until]
		why, permitted := s.judge(c.from, s.serial, c.fresh, c.a)
		s.states = all
		if permitted != c.permitted || (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, permitted %v", name, why, permitted)
		}
	}
}

// Subsets, weights and DNS destinations decide which backends a site's routes reach.
func TestReached(t *testing.T) {
	s := newSite(&Mesh{Options: Options{Net: "127.9.9"}}, 1)
	s.subsets["n1"] = "v2"
	s.entries["d.test"] = "127.9.9.44"
	for _, c := range []struct {
		routes []route
		want   string
	}{
		{[]route{{service: "a", weight: 100}}, "map[127.9.9.28:true 127.9.9.29:true]"},
		{[]route{{service: "a", subset: "n1", weight: 100}}, "map[127.9.9.29:true]"},
		{[]route{{service: "a", weight: 0}, {service: "b", weight: 100}}, "map[127.9.9.36:true 127.9.9.37:true]"},
		{[]route{{service: "d.test", weight: 100}}, "map[127.9.9.44:true]"},
	} {
		s.route(c.routes...)
		if got := fmt.Sprint(s.reached()); got != c.want {
			t.Errorf("%v: %s, want %s", c.routes, got, c.want)
		}
	}
}
