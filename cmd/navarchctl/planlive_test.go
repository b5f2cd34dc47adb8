package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/object"
)

// replicaThat answers /api/v1/plan with a status and a report. It does not answer for the replica "unable", and says so
// unless it is asked for itself alone.
func replicaThat(t *testing.T, status int, r *preview.Report, missing ...fleetapi.Missing) page {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if req.Method != http.MethodPost || req.URL.Path != "/api/v1/plan" || req.URL.Query().Get("delete") != "true" ||
			string(body) != "{\"a\":1}\n---\n{\"b\":2}" {
			t.Errorf("%s %s %s", req.Method, req.URL, body)
		}
		a := fleetapi.Answer[*preview.Report]{Schema: fleetapi.Schema, Items: []*preview.Report{r}}
		if req.URL.Query().Get("alone") != "true" {
			a.Partial = missing
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(a)
	}))
	t.Cleanup(s.Close)
	return page{address: s.URL, what: debugPages}
}

// One replica answers for all, and those that it names are missing. Where replicas cannot ask each other each is asked,
// their reports are merged, and replicas without an answer are named. A request that one replica refuses is refused,
// and so is one whose objects are refused.
func TestPlanOfReplicas(t *testing.T) {
	objects := []*object.Object{{JSON: []byte(`{"a":1}`)}, {JSON: []byte(`{"b":2}`)}}
	of := func(n int) *preview.Report {
		return &preview.Report{Schema: preview.Schema, Proxies: 10, Affected: []preview.Group{{Namespace: "shop", Proxies: n}}}
	}
	ask := func(pages ...page) (*preview.Report, string, error) {
		p := planning{at: controlPlane{found: pages, missing: []string{"pod-9 (not ready)"}}}
		var warnings strings.Builder
		r, err := p.live(t.Context(), &change{removed: objects}, &warnings)
		return r, warnings.String(), err
	}
	slow, unable := fleetapi.Missing{Replica: "slow", Reason: "no answer"}, fleetapi.Missing{Replica: "other", Reason: "plain text", Unable: true}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, fleetapi.ServesNone+": ask one with role xds; replica a did not answer: plain text", http.StatusNotFound)
	}))
	t.Cleanup(s.Close)
	leader := page{address: s.URL, what: debugPages}
	gone := page{address: "127.0.0.1:1", what: debugPages}
	for _, c := range []struct {
		name             string
		pages            []page
		affected, absent int
		warned           bool
	}{
		{"one for all", []page{replicaThat(t, http.StatusOK, of(5)), replicaThat(t, http.StatusOK, of(3))}, 5, 1, false},
		{"without a slow one", []page{replicaThat(t, http.StatusOK, of(5), slow)}, 5, 2, false},
		{"the next one", []page{gone, replicaThat(t, http.StatusOK, of(5))}, 5, 1, true},
		{"one for all, and an address that leads nowhere", []page{replicaThat(t, http.StatusOK, of(5)), gone}, 5, 1, true},
		{"each", []page{replicaThat(t, http.StatusOK, of(2), unable), replicaThat(t, http.StatusOK, of(3), unable)}, 5, 1, false},
		{"each but one", []page{replicaThat(t, http.StatusOK, of(2), unable), gone, replicaThat(t, http.StatusOK, of(3))}, 5, 2, true},
		{"a leader and each", []page{leader, replicaThat(t, http.StatusOK, of(2), unable), replicaThat(t, http.StatusOK, of(3), unable)}, 5, 1, false},
		{"a leader and one", []page{leader, replicaThat(t, http.StatusOK, of(2), slow)}, 2, 2, false},
		{"the only address", []page{replicaThat(t, http.StatusOK, of(2), unable)}, 2, 2, false},
	} {
		r, warnings, err := ask(c.pages...)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		n, _, _ := r.Count()
		if n != c.affected || len(r.Partial) != c.absent || strings.Contains(warnings, "127.0.0.1:1") != c.warned ||
			!c.warned && warnings != "" {
			t.Errorf("%s: %+v %s", c.name, r, warnings)
		}
		var exit exitError
		if !errors.As(outcomeOf(r, ""), &exit) || exit.code != exitPartial {
			t.Errorf("%s: exit code %d", c.name, exit.code)
		}
	}
	if _, _, err := ask(replicaThat(t, http.StatusForbidden, of(1)), replicaThat(t, http.StatusOK, of(1))); err == nil {
		t.Error("a refusal of a replica is no error")
	}
	if _, warnings, err := ask(gone); err == nil || warnings != "" {
		t.Errorf("no answer at all: %v, and %q says it twice", err, warnings)
	}
	_, _, err := ask(replicaThat(t, http.StatusServiceUnavailable, nil))
	if err == nil || !strings.Contains(err.Error(), "navarchctl problems may say why") {
		t.Errorf("a replica that is not ready: %v", err)
	}
	if _, _, err := ask(replicaThat(t, http.StatusOK, &preview.Report{Schema: "other"})); err == nil {
		t.Error("another schema is no error")
	}
	refused := &preview.Report{Schema: preview.Schema, Objects: []preview.Reported{{Act: preview.Refused}}}
	r, _, err := ask(replicaThat(t, http.StatusOK, of(1), unable), replicaThat(t, http.StatusOK, refused))
	var exit exitError
	if err != nil || outcomeOf(r, "") == nil || errors.As(outcomeOf(r, ""), &exit) {
		t.Errorf("a refused object: %v", err)
	}
}

// Exit codes: 3 for a risk at or above the level, 2 for a change, 0 for none.
func TestPlanExitCodes(t *testing.T) {
	risky := func(levels ...meaning.Level) *preview.Report {
		r := &preview.Report{Affected: []preview.Group{{Proxies: 1}}}
		for _, level := range levels {
			r.Risks = append(r.Risks, preview.Risk{Level: level.String()})
		}
		return r
	}
	for _, one := range []struct {
		r      *preview.Report
		failOn string
		code   int
	}{
		{&preview.Report{}, "any", 0}, {risky(), "any", exitChanges}, {risky(meaning.Medium), "", exitChanges},
		{risky(meaning.Medium), "high", exitChanges}, {risky(meaning.Medium), "medium", exitRisk},
		{risky(meaning.Medium), "any", exitRisk}, {risky(meaning.Medium, meaning.High), "high", exitRisk},
	} {
		exit := exitError{}
		errors.As(outcomeOf(one.r, one.failOn), &exit)
		if exit.code != one.code {
			t.Errorf("%+v, --fail-on %s: %d, want %d", one.r.Risks, one.failOn, exit.code, one.code)
		}
	}
}
