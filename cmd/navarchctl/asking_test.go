package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/store/apiserver/apiservertest"
	"navarch.io/navarch/store/problem"
)

// process is a process of the control plane that answers /api/v1/problems: with its own problems, and unless it is
// asked for itself alone also with those of its peers.
type process struct {
	name       string
	own, peers []string
	missing    []fleetapi.Missing
}

// serves returns the address of the process. It answers in windows of one problem.
func (p process) serves(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != fleetapi.Root+"problems" {
			http.NotFound(w, r)
			return
		}
		q := r.URL.Query()
		a, messages := fleetapi.Answer[fleetapi.Problem]{Schema: fleetapi.Schema, Partial: p.missing}, append(p.peers, p.own...)
		if q.Get("alone") == "true" {
			a.Replica, a.Partial, messages = p.name, nil, p.own
		}
		var parts []fleetapi.Problem
		for _, m := range messages {
			parts = append(parts, fleetapi.Problem{Problem: inspect.Problem{Object: "Gateway a/b", Severity: problem.Warning, Message: m}})
		}
		q.Set("limit", "1")
		s, err := fleetapi.ParseProblemSelection(q)
		if err != nil {
			t.Error(err)
		}
		merged := s.MergeProblems([]fleetapi.From[[]fleetapi.Problem]{{Part: parts}})
		a.Items, a.Next = merged.Items, merged.Next
		_ = json.NewEncoder(w).Encode(a)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// One process answers for all, in windows. If it cannot ask another, such as a leader that serves no proxies, each
// listed process is asked for its own part. Processes that are in no answer are named, and --exit-code tells so.
// Promise: delivery.md#the-api
func TestProblemsOfAllProcesses(t *testing.T) {
	leads := fleetapi.Missing{Replica: "leader", Reason: "it leads, and serves no proxies", Unable: true}
	slow := fleetapi.Missing{Replica: "slow", Reason: "no answer within 2s"}
	replica := process{"istiod-0", []string{"of a replica"}, []string{"of a peer"}, []fleetapi.Missing{leads}}.serves(t)
	other := process{"istiod-1", []string{"of a peer"}, []string{"of a replica"}, []fleetapi.Missing{leads}}.serves(t)
	leader := process{"leader", []string{"of the leader"}, []string{"of a replica", "of a peer"}, nil}.serves(t)
	partial := process{"istiod-0", []string{"of a replica"}, nil, []fleetapi.Missing{slow}}.serves(t)
	admit := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, fleetapi.ServesNone+", and reads no configuration", http.StatusNotFound)
	}))
	t.Cleanup(admit.Close)
	older := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/debug/problems" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `[{"object": "Gateway a/b", "severity": "warning", "message": "of an older version"}]`)
	}))
	t.Cleanup(older.Close)
	const all = "of a peer,of a replica,of the leader"
	for _, one := range []struct {
		server, severity, listed, warning string
		code                              int
	}{
		{leader, "", all, "", 1},
		{replica, "", "of a peer,of a replica", "1 replicas are not in it: leader (it leads, and serves no proxies)", 1},
		{replica, "error", "", "1 replicas are not in it: leader (", exitPartial},
		{strings.Join([]string{admit.Listener.Addr().String(), replica, other, leader}, ","), "", all, "", 1},
		{strings.Join([]string{replica, leader}, ","), "error", "", "", 0},
		{replica + "," + other, "", "of a peer,of a replica", "1 replicas are not in it: leader (", 1},
		{replica + ",127.0.0.1:1", "error", "", "2 replicas are not in it: leader (it leads, and serves no proxies), 127.0.0.1:1 (no answer)", exitPartial},
		{partial, "error", "", "1 replicas are not in it: slow (no answer within 2s)", exitPartial},
		{older.Listener.Addr().String() + ",127.0.0.1:1", "", "of an older version", "1 replicas are not in it: 127.0.0.1:1 (no answer)", 1},
	} {
		args := []string{"problems", "-o", "json", "--exit-code", "--server", one.server}
		if one.severity != "" {
			args = append(args, "--severity", one.severity)
		}
		out, warnings, err := ran(args...)
		var items []fleetapi.Problem
		if err := json.Unmarshal([]byte(out), &items); err != nil {
			t.Errorf("%s: %v %s", one.server, err, out)
		}
		var listed []string
		for _, p := range items {
			listed = append(listed, p.Message)
		}
		code, exit := 0, exitError{code: 1}
		if err != nil {
			errors.As(err, &exit)
			code = exit.code
		}
		if got := strings.Join(listed, ","); got != one.listed || code != one.code ||
			one.warning == "" && strings.Contains(warnings, "warning") || !strings.Contains(warnings, one.warning) {
			t.Errorf("%s %s: %q, exit code %d, %s", one.server, one.severity, got, code, warnings)
		}
	}
}

// A proxy's resources and explanations come by way of any process. A process that does not find the proxy, and could
// not ask all others, is not the last word; a resource that the proxy does not have is.
func TestAProxyByWayOfAnyProcess(t *testing.T) {
	asked := 0
	process := func(answer func(asks string, w http.ResponseWriter)) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			answer(strings.TrimPrefix(r.URL.Path, fleetapi.Root)+" "+r.URL.Query().Get("resource"), w)
		}))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	lost := process(func(_ string, w http.ResponseWriter) {
		http.Error(w, `proxy "web-0.shop" is not connected to this replica; replica b did not answer: plain text`, http.StatusNotFound)
	})
	found := process(func(asks string, w http.ResponseWriter) {
		switch asks {
		case "explain x":
			fmt.Fprint(w, `{"items": [[{"type": "cluster", "name": "x", "message": "m", "version": "1", "specs": []}]]}`)
		case "config/web-0.shop ":
			fmt.Fprintf(w, `{"items": [%s]}`, envoyDump)
		default:
			http.Error(w, `proxy web-0.shop has no resource "y"`, http.StatusNotFound)
		}
	})
	for _, one := range []struct {
		args        []string
		out, failed string
		asked       int
	}{
		{[]string{"explain", "--proxy", "web-0.shop", "x", "--server", lost + "," + found}, "cluster x (m, version 1)", "", 2},
		{[]string{"proxy-config", "cluster", "web-0.shop", "-o", "name", "--server", lost + "," + found}, "\n", "", 2},
		{[]string{"explain", "--proxy", "web-0.shop", "y", "--server", found + "," + lost}, "", `has no resource "y"`, 1},
		{[]string{"explain", "--proxy", "web-0.shop", "x", "--server", lost}, "",
			`proxy "web-0.shop" is not connected to ` + lost + "; replica b did not answer: plain text", 1},
	} {
		asked = 0
		out, _, err := ran(one.args...)
		if !strings.Contains(out, one.out) || (err == nil) != (one.failed == "") || err != nil && !strings.Contains(err.Error(), one.failed) ||
			asked != one.asked {
			t.Errorf("%v: %d requests, %v\n%s", one.args, asked, err, out)
		}
	}
}

// Pods of two revisions are two fleets, which do not answer for each other: both are asked.
func TestProblemsOfTwoRevisions(t *testing.T) {
	f, pods := forwarded{}, []string{}
	for _, revision := range []string{"default", "canary"} {
		f[revision] = func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"schema": %q, "items": [{"object": "Gateway a/b", "severity": "error", "message": "of %s"}]}`, fleetapi.Schema, revision)
		}
		pods = append(pods, fmt.Sprintf(`{"metadata": {"namespace": "istio-system", "name": %q, "labels": {"app": "istiod", "istio.io/rev": %q}},
			"status": {"conditions": [{"type": "Ready", "status": "True"}]}}`, revision, revision))
	}
	t.Setenv("KUBECONFIG", apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		if pod, is := strings.CutSuffix(r.URL.Path, "/portforward"); is && r.Method == http.MethodPost {
			portforward.ServePortForward(w, r, f, path.Base(pod), "", nil, time.Minute, time.Minute, portforward.SupportedProtocols)
			return
		}
		fmt.Fprintf(w, `{"items": [%s]}`, strings.Join(pods, ", "))
	}))
	out, warnings, err := ran("problems")
	if err != nil || !strings.Contains(out, "of default") || !strings.Contains(out, "of canary") || strings.Contains(warnings, "warning") {
		t.Errorf("%v: %s%s", err, out, warnings)
	}
}
