package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// problem is what is read of a line of /debug/problems.
type problem struct {
	Object, Field, Severity, Message string
}

// page asks a replica.
func (r Replica) page(ctx context.Context, port int, path string) (status int, body []byte, head http.Header, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost:"+strconv.Itoa(port)+path, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	answer, err := r.Client.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer answer.Body.Close()
	const most = 8 << 20
	body, err = io.ReadAll(io.LimitReader(answer.Body, most))
	return answer.StatusCode, body, answer.Header, err
}

// httpPort is that of /ready.
const httpPort = 8080

// pages asks each replica what it says of itself: whether it is ready, its clock, and what is wrong with etcd and the configuration.
func (k *checker) pages(ctx context.Context) {
	for _, r := range k.processes(everyRole...) {
		began := time.Now()
		status, body, head, err := r.page(ctx, httpPort, "/ready")
		took := time.Since(began)
		switch lines := strings.Split(strings.TrimSpace(string(body)), "\n"); {
		case err != nil:
			k.say(r.Name, Failure, err.Error(), "see its log, and whether its --http-addr has port 8080")
			continue
		case status != http.StatusOK:
			k.say(r.Name, Failure, "not ready: "+strings.Join(lines, "; "), "see its log")
		case len(lines) > 1:
			k.say(r.Name, Warning, "ready, but: "+strings.Join(lines[1:], "; "), "see its log")
		default:
			k.say(r.Name, OK, "ready", "")
		}
		if said, err := http.ParseTime(head.Get("Date")); err == nil {
			k.compare("clock of "+r.Name, said, took)
		}
		k.problems(ctx, r.Replica)
	}
}

// problems makes a line of what is wrong with etcd, as the replica sees it, and one of the number of other problems.
func (k *checker) problems(ctx context.Context, r Replica) {
	status, body, _, err := r.page(ctx, r.Monitoring, "/debug/problems")
	var all []problem
	switch {
	case err != nil:
	case status != http.StatusOK:
		err = fmt.Errorf("/debug/problems: %d %.200s", status, body)
	default:
		err = json.Unmarshal(body, &all)
	}
	if err != nil {
		k.say("etcd, by "+r.Name, Unknown, err.Error(), "its pages are off with ENABLE_DEBUG_ON_HTTP=false")
		return
	}
	worst, said, others := OK, []string{}, 0
	for _, p := range all {
		if p.Object != "etcd" {
			others++
			continue
		}
		said = append(said, p.Message)
		switch {
		case p.Severity == "error":
			worst = Failure
		case worst == OK:
			worst = Warning
		}
	}
	if worst == OK {
		k.say("etcd, by "+r.Name, OK, "it answers, and has room", "")
	} else {
		k.say("etcd, by "+r.Name, worst, strings.Join(said, "; "), "see deploy/docs/operations.md, etcd")
	}
	if others > 0 {
		k.say("configuration, by "+r.Name, Warning, fmt.Sprintf("%d problems", others), "see them: /debug/problems of the replica")
	}
}

// errNoReplica is why something is not looked at.
var errNoReplica = errors.New("there is no ready replica to ask")
