package check

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	of "navarch.io/navarch/store/problem"
)

// problem has the used fields of an element of /debug/problems.
type problem struct {
	Object, Location, Field, Code, Severity, Message string
}

// severe is the severity of a problem that keeps an object from taking effect.
const severe = of.Error

// page requests a page of a replica. It reads at most 8 MiB of the body. An HTTP error status is not an error.
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

// httpPort is the port of /ready.
const httpPort = 8080

// pages checks each replica's readiness and clock, and its reports about etcd and the configuration.
func (k *checker) pages(ctx context.Context) {
	var found []problem
	var unread []string
	for _, r := range k.processes(everyRole...) {
		began := time.Now()
		status, body, head, err := r.page(ctx, httpPort, "/ready")
		took := time.Since(began)
		switch lines := strings.Split(strings.TrimSpace(string(body)), "\n"); {
		case err != nil:
			k.add(NameReady.of(r.Name), Failure, err.Error(), "see its log, and whether its --http-addr has port 8080")
			continue
		case status != http.StatusOK:
			k.add(NameReady.of(r.Name), Failure, "not ready: "+strings.Join(lines, "; "), "see its log")
		case len(lines) > 1:
			k.add(NameReady.of(r.Name), Warning, "ready, but: "+strings.Join(lines[1:], "; "), "see its log")
		default:
			k.add(NameReady.of(r.Name), OK, "ready", "")
		}
		if said, err := http.ParseTime(head.Get("Date")); err == nil {
			k.compare(NameClock.of("clock of "+r.Name), said, took)
		}
		var of []problem
		if err := r.debug(ctx, "/debug/problems", &of); err != nil {
			unread = append(unread, r.Name+": "+err.Error())
		}
		found = append(found, of...)
	}
	if len(unread) > 0 {
		k.add(NamePages.of("problems").count(len(unread)), Unknown, some(unread), "its pages are off with ENABLE_DEBUG_ON_HTTP=false")
	}
	k.reportConcerns(unique(found))
}

// debug requests a page on the replica's monitoring port, and decodes the page's JSON into a value. Errors: the request
// fails, the status is not 200, or the body is not JSON of the expected form.
func (r Replica) debug(ctx context.Context, path string, into any) error {
	status, body, _, err := r.page(ctx, r.Monitoring, path)
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("%s: %d %.200s", path, status, body)
	}
	return json.Unmarshal(body, into)
}

// unique merges equal problems of several replicas, and sorts the problems by object. It sorts its argument in place,
// and overwrites its elements.
func unique(all []problem) []problem {
	slices.SortFunc(all, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Field, b.Field),
			cmp.Compare(a.Message, b.Message), cmp.Compare(a.Location, b.Location))
	})
	return slices.CompactFunc(all, func(a, b problem) bool { return a.Object == b.Object && a.Field == b.Field && a.Message == b.Message })
}

// concern is a group of problems that makes one result.
type concern struct {
	check    subject
	fine, do string // fine: the text if there are no problems; do: the advice if there are problems
	fails    bool   // true: errors make the result a failure; false: a warning
	warns    bool   // true: warnings make the result a warning; false: it stays ok
	is       func(problem) bool
}

// concerns are the groups of problems. A problem belongs to the first group whose predicate accepts the problem. Errors
// of policies are failures because workloads refuse all requests under an invalid policy
// (deploy/docs/compatibility.md).
var concerns = []concern{
	{NameEtcd.of("etcd"), "it answers, and has room", "see deploy/docs/etcd.md",
		true, true, func(p problem) bool { return p.Object == "etcd" }},
	{NameWrites.of("writes to Kubernetes"), "none is refused",
		"give the leader's service account its rights, as the chart does: deploy/docs/kubernetes.md, Rights", true, false,
		func(p problem) bool { return p.Location == "Kubernetes" }},
	{NameRemovals.of("held removals"), "none", "put the objects back, or accept their removal: navarchctl removals list", false, true,
		func(p problem) bool { return p.Code == string(of.Held) && p.Severity != string(severe) }},
	{NamePolicies.of("policies"), "all apply",
		"mend these objects: until then the workloads that they select refuse all requests", true, false,
		func(p problem) bool {
			kind, _, _ := strings.Cut(p.Object, " ")
			return slices.Contains([]string{"AuthorizationPolicy", "PeerAuthentication", "RequestAuthentication"}, kind)
		}},
	{NameConfiguration.of("configuration"), "no errors", "see navarchctl problems", false, false, func(problem) bool { return true }},
}

// reportConcerns adds one result for each concern.
func (k *checker) reportConcerns(found []problem) {
	for _, c := range concerns {
		var errors, warnings []string
		found = slices.DeleteFunc(found, func(p problem) bool {
			switch {
			case !c.is(p):
				return false
			case p.Severity == string(severe):
				errors = append(errors, p.Object+": "+p.Message)
			default:
				warnings = append(warnings, p.Object+": "+p.Message)
			}
			return true
		})
		switch check := c.check.count(len(errors)); {
		case len(errors) > 0 && c.fails:
			k.add(check, Failure, some(errors), c.do)
		case len(errors) > 0:
			k.add(check, Warning, fmt.Sprintf("%d errors: %s", len(errors), some(errors)), c.do)
		case c.warns && len(warnings) > 0:
			k.add(c.check.count(len(warnings)), Warning, some(warnings), c.do)
		case len(warnings) > 0:
			k.add(check, OK, fmt.Sprintf("%s; %d warnings: navarchctl problems lists them", c.fine, len(warnings)), "")
		default:
			k.add(check, OK, c.fine, "")
		}
	}
}

// errNoReplica is the error of checks that need a replica, if no replica is ready.
var errNoReplica = errors.New("there is no ready replica to ask")
