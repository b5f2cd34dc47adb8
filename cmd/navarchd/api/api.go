// Package api serves /api/v1, a JSON API for all tools. Each replica answers for the whole fleet, except at endpoints
// about one process. The replica makes its own part of the answer, requests the parts of the other replicas in the name
// of the verified caller, and merges the parts.
//
// Owns: the table of endpoints, and the requests that wait for an event.
// Reads: the state of this process (cmd/navarchd/debug), the ledger of deliveries, the answers of other replicas
// (api/ask).
// Never: changes the configuration; shows one tenant's data to another; waits for another replica longer than the
// request itself may wait plus ask.Patience. The field "partial" of an answer names the replicas whose part is missing.
package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/api/ask"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/shard/member"
)

// API serves the endpoints. Make one with New. Any goroutine may call its methods. The fields of Config must not be
// changed.
type API struct {
	Config
	tenants, system *web.Turns // limit the waiting requests of tenants, and of callers who see everything
}

// waitsOfTenant is the maximum number of waiting requests of one tenant. waitsOfSystem is the maximum number of waiting
// requests of one caller who sees everything. All callers on this machine count as one caller.
const waitsOfTenant, waitsOfSystem = 32, 128

// New returns the API of a process, with a copy of c. The fields Rules and Pages are required.
func New(c Config) *API {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &API{Config: c, tenants: web.NewTurns(1, waitsOfTenant), system: web.NewTurns(1, waitsOfSystem)}
}

// endpoint is one path of the API.
type endpoint struct {
	name, help string
	parameters []string
	tenants    bool // callers of a tenant are answered too, with only the data that they may see
	costly     bool // making the part takes much processor time, because it plans or reads the whole plan
	paged      bool // the part is a page of /debug; Pages.Render waits for the caller's turn
	alone      bool // only the process that serves the request answers
	fleet      bool // the answer is about connected proxies
	leads      bool // the answer needs the leader's part
	probes     bool // replicas first get a cheap question, and only those that answer get the request
	// waits returns the time for which the request may wait; nil: the request does not wait.
	waits func(q url.Values) (time.Duration, error)
	// part makes the part of this process. For an error without a known status, the response is 400 (statusOf).
	part func(a *API, ctx context.Context, who authz.Caller, q url.Values) (any, error)
	// posted makes the part of a POST request, and waits for the caller's turn itself; nil: the endpoint answers GET
	// requests.
	posted func(a *API, ctx context.Context, who authz.Caller, q url.Values, body []byte) (any, error)
	within time.Duration // timeout of a POST request
	body   int64         // largest body of a POST request, in bytes
	// merge makes the answer from the parts. Its errors become HTTP statuses like the errors of part.
	merge merger
}

// statusError is an error with an HTTP status.
type statusError struct {
	status int
	text   string
}

// Error implements error.
func (e statusError) Error() string { return e.text }

// statusOf returns the HTTP status of an error; 400 for errors without a known status.
func statusOf(err error) int {
	var s statusError
	switch {
	case errors.As(err, &s):
		return s.status
	case errors.Is(err, web.ErrBusy):
		return http.StatusTooManyRequests
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

// Handler returns the handler of /api/v1/. It authenticates each caller, and answers with the data that the caller may
// see. Failures have an HTTP status and a text. Refusals by Config.Rules have the statuses of authz.Authorizer.Guard.
// An unknown endpoint or proxy gets 404, a wrong method 405, and a tenant's request about the whole system 403. Too
// many requests of a caller get 429. An error without a status of its own gets 400.
func (a *API) Handler() http.Handler {
	return a.Rules.Guard(func(who authz.Caller) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, who) })
	})
}

// serve answers one request.
func (a *API) serve(w http.ResponseWriter, r *http.Request, who authz.Caller) {
	w.Header().Set("Cache-Control", "no-store")
	path := strings.TrimPrefix(r.URL.Path, fleetapi.Root)
	if path == "" && r.Method == http.MethodGet {
		list(w)
		return
	}
	q := r.URL.Query()
	name, rest, deeper := strings.Cut(path, "/")
	e := endpointOf(name)
	method := http.MethodGet
	if e != nil && e.posted != nil {
		method = http.MethodPost
	}
	switch {
	case r.Method != method:
		w.Header().Set("Allow", method)
		http.Error(w, "the API answers "+method+" requests here", http.StatusMethodNotAllowed)
		return
	case e == nil || deeper != (name == configName):
		http.Error(w, fmt.Sprintf("%.100q is no endpoint: %s lists them", path, fleetapi.Root), http.StatusNotFound)
		return
	case who.Sees != nil && !e.tenants:
		http.Error(w, authz.ForSystem, http.StatusForbidden)
		return
	case !e.alone && a.knowsNothing():
		http.Error(w, fleetapi.ServesNone+", and reads no configuration: ask one with role xds or ingest", http.StatusNotFound)
		return
	case deeper:
		q.Set(proxyParameter, rest)
	}
	ctx := r.Context()
	if e.posted != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.within)
		defer cancel()
	}
	body, sent, err := a.body(ctx, e, who, w, r)
	defer sent()
	var answer any
	if err == nil {
		var read func()
		answer, read, err = a.answer(ctx, e, who, q, body)
		defer read()
	}
	if err != nil {
		if s := statusOf(err); s == http.StatusTooManyRequests || s == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	if file, is := answer.(archive); is {
		w.Header().Set("Content-Type", "application/gzip")
		_, _ = w.Write(file)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // an error means that the client has disconnected
}

// knowsNothing reports whether this process has role admit alone, without a store. It has a part in no answer, and
// cannot ask others.
func (a *API) knowsNothing() bool { return a.Proxies == nil && a.Objects == nil && a.Replicas == nil }

// list serves the list of endpoints.
func list(w io.Writer) {
	for _, e := range endpoints {
		fmt.Fprintf(w, "%s%-12s %s\n", fleetapi.Root, e.name, e.help)
		if len(e.parameters) > 0 {
			fmt.Fprintf(w, "%s%-12s parameters: %s\n", strings.Repeat(" ", len(fleetapi.Root)), "", strings.Join(e.parameters, ", "))
		}
	}
}

// check refuses parameters that the endpoint does not read, and repeated parameters. It returns the time for which the
// request may wait.
func (e *endpoint) check(q url.Values) (wait time.Duration, err error) {
	for name, values := range q {
		if !slices.Contains(e.parameters, name) && !(e.name == configName && name == proxyParameter) {
			return 0, fmt.Errorf("parameter %.60q: %s%s reads %s", name, fleetapi.Root, e.name, strings.Join(e.parameters, ", "))
		}
		if len(values) != 1 {
			return 0, fmt.Errorf("parameter %s: %d values, want one", name, len(values))
		}
		if name == aloneParameter && !slices.Contains([]string{"", "true", "false"}, values[0]) {
			return 0, fmt.Errorf("%s=%.20q: want true or false", name, values[0])
		}
	}
	if e.waits == nil {
		return 0, nil
	}
	return e.waits(q)
}

// answer waits for the caller's turn, and makes the answer from the parts of all replicas. For a page of one proxy, it
// asks other replicas only if this process does not have the proxy. The result read is a function, never nil, which
// must be called once the client has received the answer.
func (a *API) answer(ctx context.Context, e *endpoint, who authz.Caller, q url.Values, body []byte) (answer any, read func(), err error) {
	wait, err := e.check(q)
	if err != nil {
		return nil, func() {}, err
	}
	wait += e.within
	made, read, err := a.turn(ctx, e, who)
	if err != nil {
		return nil, func() {}, err
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	inquire := func() []ask.Heard { return a.inquire(asking, e, who, q, body, wait) }
	others := make(chan []ask.Heard, 1)
	if !e.paged {
		go func() { others <- inquire() }()
	}
	own := a.part(ctx, e, who, q, body)
	made()
	heard := []ask.Heard{{Replica: a.Self, Reply: own}}
	switch {
	case !own.OK() && own.Status != http.StatusNotFound:
		return nil, read, statusError{own.Status, own.Text}
	case !e.paged:
		heard = append(heard, <-others...)
	case !own.OK():
		heard = append(heard, inquire()...)
	}
	answer, err = a.merged(e, who, q, heard)
	return answer, read, err
}

// inquire requests the parts of the other replicas. It returns nil if no other replica has to be asked.
func (a *API) inquire(ctx context.Context, e *endpoint, who authz.Caller, q url.Values, body []byte,
	wait time.Duration) []ask.Heard {
	if a.Replicas == nil || e.alone || q.Get(aloneParameter) == "true" {
		return nil
	}
	question := ask.Question{Endpoint: e.name, Query: e.asked(a, q), Body: body,
		Caller: ask.Caller{Name: who.Name, Tenant: who.Tenant, All: who.Sees == nil}}
	if !e.probes {
		return a.Replicas.Ask(ctx, question, wait)
	}
	var silent []ask.Heard
	question.Of = []string{}
	for _, h := range a.Replicas.Ask(ctx, ask.Question{Endpoint: replicasName, Caller: question.Caller}, 0) {
		if h.Err == nil {
			question.Of = append(question.Of, h.Replica)
		} else {
			silent = append(silent, h)
		}
	}
	return append(a.Replicas.Ask(ctx, question, wait), silent...)
}

// part makes the part of this process. A failure is a Reply with its HTTP status.
func (a *API) part(ctx context.Context, e *endpoint, who authz.Caller, q url.Values, body []byte) ask.Reply {
	var part any
	var err error
	if e.posted != nil {
		part, err = e.posted(a, ctx, who, q, body)
	} else {
		part, err = e.part(a, ctx, who, q)
	}
	if err != nil {
		return ask.Failed(statusOf(err), err)
	}
	raw, err := json.Marshal(part)
	if err != nil {
		return ask.Failed(http.StatusInternalServerError, err)
	}
	return ask.Reply{Part: raw, Revision: a.notified()}
}

// turn waits until the caller may be answered, and returns the two functions of Pages.Turn. For requests that wait for
// an event, turn limits only their number. Such requests use little processor time, and must not delay other requests
// of their tenant. With an error, the results made and read are nil.
func (a *API) turn(ctx context.Context, e *endpoint, who authz.Caller) (made, read func(), err error) {
	switch {
	case e.paged || e.posted != nil:
		return func() {}, func() {}, nil
	case e.waits == nil:
		return a.Pages.Turn(ctx, who, e.costly)
	}
	waiters := a.system
	if who.Sees != nil {
		waiters = a.tenants
	}
	turn, err := waiters.Take(ctx, web.Question{Caller: cmp.Or(who.Tenant, who.Name)})
	return turn.Made, turn.Done, err
}

// notified returns the store's revision up to which the streams of this process are notified. The revision is 0 without
// role xds, and until a plan exists.
func (a *API) notified() int64 {
	if a.Proxies == nil {
		return 0
	}
	_, notified := a.Proxies.Planned()
	return notified
}

// sees returns a function, never nil, that reports whether the caller may see a namespace.
func sees(who authz.Caller) func(namespace string) bool { return who.Sees.Of }

// members returns the records of the fleet's replicas. It returns nil if this process is alone, or does not know the
// records yet.
func (a *API) members() []member.Record {
	if a.Members == nil {
		return nil
	}
	return a.Members()
}
