package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/object"
)

// replicaThat serves /debug/plan with a status and a report.
func replicaThat(t *testing.T, status int, r *preview.Report) page {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if req.Method != http.MethodPost || req.URL.String() != "/debug/plan?delete=true" || string(body) != "{\"a\":1}\n---\n{\"b\":2}" {
			t.Errorf("%s %s %s", req.Method, req.URL, body)
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(r)
	}))
	t.Cleanup(s.Close)
	return page{address: s.URL, what: debugPages}
}

// The reports of replicas are merged, and replicas without an answer are named: the numbers are lower bounds then. A
// request that one replica refuses is refused, and so is one whose objects are refused.
func TestPlanOfReplicas(t *testing.T) {
	objects := []*object.Object{{JSON: []byte(`{"a":1}`)}, {JSON: []byte(`{"b":2}`)}}
	of := func(n int) *preview.Report {
		return &preview.Report{Schema: preview.Schema, Proxies: 10, Affected: []preview.Group{{Namespace: "shop", Proxies: n}}}
	}
	ask := func(pages ...page) (*preview.Report, string, error) {
		p := planning{remove: true, at: controlPlane{found: pages, missing: []string{"pod-9 (not ready)"}}}
		var warnings strings.Builder
		r, err := p.live(t.Context(), objects, &warnings)
		return r, warnings.String(), err
	}
	good, gone := replicaThat(t, http.StatusOK, of(2)), page{address: "127.0.0.1:1", what: debugPages}
	r, warnings, err := ask(good, replicaThat(t, http.StatusOK, of(3)), gone)
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := r.Count(); n != 5 || r.Proxies != 20 || len(r.Partial) != 2 || !strings.Contains(warnings, "127.0.0.1:1") {
		t.Errorf("%+v %s", r, warnings)
	}
	var exit exitError
	if !errors.As(outcomeOf(r, ""), &exit) || exit.code != exitPartial {
		t.Errorf("exit code %d", exit.code)
	}
	if _, _, err := ask(good, replicaThat(t, http.StatusForbidden, nil)); err == nil {
		t.Error("a refusal of a replica is no error")
	}
	if _, _, err := ask(gone); err == nil {
		t.Error("no answer at all is no error")
	}
	if _, _, err := ask(replicaThat(t, http.StatusOK, &preview.Report{Schema: "other"})); err == nil {
		t.Error("another schema is no error")
	}
	refused := &preview.Report{Schema: preview.Schema, Objects: []preview.Reported{{Act: preview.Refused}}}
	r, _, err = ask(good, replicaThat(t, http.StatusOK, refused))
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
