package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/api/ask"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/inspect"
)

// peers answers questions with fixed results.
type peers []ask.Heard

// Ask implements Replicas.
func (p peers) Ask(context.Context, ask.Question, time.Duration) []ask.Heard { return p }

// A list of problems names a leader that no replica could ask, unless it was asked for one process alone. A process
// that serves no proxies has no part in the counts of patches, and one that cannot ask others has a part in nothing.
func TestAnswersNameTheLeader(t *testing.T) {
	const page = `[{"object": "Gateway a/b", "severity": "error", "code": "Invalid", "message": "m", "location": "LOCATION"}]`
	heard := func(replica string) ask.Heard {
		return ask.Heard{Replica: replica, Reply: ask.Reply{Part: json.RawMessage(strings.ReplaceAll(page, "LOCATION", replica))}}
	}
	slow := ask.Heard{Replica: "slow", Err: errors.New("no answer within 2s")}
	for _, one := range []struct {
		path, leader string
		replicas     Replicas
		status       int
		missing      string // names of replicas
		replica      string
	}{
		{"problems", "leader", peers{heard("b")}, http.StatusOK, "leader", ""},
		{"problems", "leader", peers{heard("b"), slow}, http.StatusOK, "slow,leader", ""},
		{"problems", "b", peers{heard("b")}, http.StatusOK, "", ""},
		{"problems", "slow", peers{slow}, http.StatusOK, "slow", ""},
		{"problems", "self", peers{}, http.StatusOK, "", ""},
		{"problems", "", peers{}, http.StatusOK, "", ""},
		{"problems?alone=true", "leader", peers{heard("b")}, http.StatusOK, "", "self"},
		{"problems?alone=maybe", "leader", peers{}, http.StatusBadRequest, "", ""},
		{"problems?severity=odd", "leader", peers{}, http.StatusBadRequest, "", ""},
		{"patches", "leader", peers{heard("b")}, http.StatusOK, "", ""},
		{"patches?alone=true", "leader", peers{heard("b")}, http.StatusNotFound, "", ""},
		{"problems", "leader", nil, http.StatusNotFound, "", ""},
	} {
		rules := &authz.Authorizer{Open: true}
		a := New(Config{Self: "self", Rules: rules, Pages: debug.New(debug.Pages{Rules: rules}), Replicas: one.replicas,
			Leader: func() string { return one.leader }})
		w := httptest.NewRecorder()
		a.serve(w, httptest.NewRequest(http.MethodGet, fleetapi.Root+one.path, nil), authz.Caller{Name: "x"})
		var answer fleetapi.Answer[inspect.Problem]
		if err := json.Unmarshal(w.Body.Bytes(), &answer); w.Code == http.StatusOK && err != nil || w.Code != one.status {
			t.Errorf("%s: %d %s", one.path, w.Code, w.Body)
		}
		if w.Code == http.StatusNotFound && !strings.HasPrefix(w.Body.String(), fleetapi.ServesNone) {
			t.Errorf("%s: %s", one.path, w.Body)
		}
		var missing []string
		for _, m := range answer.Partial {
			missing = append(missing, m.Replica)
		}
		if got := strings.Join(missing, ","); got != one.missing || answer.Replica != one.replica {
			t.Errorf("%s, leader %q: without %q, alone %q", one.path, one.leader, got, answer.Replica)
		}
	}
}

// The text of a proxy's own replica is the answer, whatever the others say of the proxy.
func TestAResourceThatTheProxyLacks(t *testing.T) {
	no := func(text string) ask.Heard {
		return ask.Heard{Reply: ask.Reply{Status: http.StatusNotFound, Text: text}}
	}
	elsewhere, lacks := no(`proxy "a.b" `+inspect.NotConnected), no(`proxy a.b has no resource "x"`)
	for _, heard := range [][]ask.Heard{{elsewhere, lacks}, {lacks, elsewhere}} {
		if _, _, absent := sortOut(heard); absent != lacks.Reply.Text {
			t.Errorf("%+v: %q", heard, absent)
		}
	}
}
