// Package replay answers HTTP requests for the processes in a report (navarchctl --snapshot). It serves /api/v1, /debug
// and /version with the handlers of navarchd. The planner of this build plans the configuration again from the report's
// records and nodes. Acknowledgements, refusals, problems and the list of changes come from the report.
//
// Owns: one plan for each process of the report, computed at the first use.
// Reads: cmd/internal/report.
// Never: opens an address; trusts the report (a plan that fails is an error in the response).
package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/api"
	"navarch.io/navarch/cmd/navarchd/api/ask"
	"navarch.io/navarch/cmd/navarchd/collect"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/cmd/navarchd/judge"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/printable"
)

// Process is one process of a report.
type Process struct {
	Name   string // of the process in the report
	Serves bool   // the process served proxies
	// Client passes requests to the handlers of the process, in memory. Use URLs that begin with http://localhost/. It
	// is safe for concurrent use, and never nil.
	Client *http.Client
}

// process has the content and the handlers of one process of the report.
type process struct {
	*report.Process
	index    report.Index
	snapshot *mirror.Snapshot // nil if the report has no records
	plan     planOnce
	api      *api.API
	rules    *authz.Authorizer
	debug    http.Handler
	previews *debug.Pages
}

// New returns the processes of a report, in the order of the report; nil if it has no process. The processes keep r,
// which must not change afterwards. Faults of the report become errors in responses.
func New(r *report.Report) []Process {
	all := make([]*process, 0, len(r.Processes))
	for _, of := range r.Processes {
		of.Name = printable.Line(of.Name) // errors contain it
		all = append(all, newProcess(r, of))
	}
	var out []Process
	for _, p := range all {
		p.api = p.newAPI(peers{p, all, r.Index.Missing})
		out = append(out, Process{Name: p.Name, Serves: p.serves(), Client: &http.Client{Transport: web.Local{Handler: p.handler()}}})
	}
	return out
}

func newProcess(r *report.Report, of *report.Process) *process {
	p := &process{Process: of, index: r.Index, snapshot: r.Snapshot,
		rules: &authz.Authorizer{Open: true, Tenant: func(string) string { return "" }}}
	p.debug = p.pages()
	previews := debug.Pages{ID: p.Name, Rules: p.rules}
	if p.serves() {
		previews.Previewer = &debug.Previewer{Base: p.base, Proposals: validate.New(normal.New(p.Normal), nil, nil, nil, judge.Record)}
	}
	p.previews = debug.New(previews)
	return p
}

// serves reports whether the process served proxies.
func (p *process) serves() bool { return p.Notified > 0 || p.Served > 0 || len(p.Proxies) > 0 }

// newAPI returns the handlers of /api/v1. The argument others provides the answers of the report's other processes.
func (p *process) newAPI(others peers) *api.API {
	c := api.Config{Self: p.Name, Zone: p.Zone, Version: p.Version, Rules: p.rules, Pages: apiPages{p}, Replicas: others,
		Now: func() time.Time { return p.Created }, Lacks: p.lacks}
	if p.serves() {
		c.Proxies, c.Describe = proxies{p}, p.describe
		c.Changes = func(func(string) bool, bool) []ledger.Report {
			var all []ledger.Report
			_ = p.decode(collect.Changes, &all) // a page that the report lacks is empty
			return all
		}
	}
	return api.New(c)
}

// decode decodes a page that the report contains. A missing page is an error.
func (p *process) decode(page string, into any) error {
	if err := p.lacks(page); err != nil {
		return err
	}
	return json.Unmarshal(p.Pages[page], into)
}

// lacks returns an error if the report does not have a page of the process.
func (p *process) lacks(page string) error {
	if _, ok := p.Pages[page]; ok {
		return nil
	}
	return fmt.Errorf("the report does not have it: %s", p.why(page))
}

// why returns the reason for a missing page.
func (p *process) why(page string) string {
	for _, m := range p.Missing {
		if m.Name == page || strings.HasSuffix(m.Name, "/"+page) {
			return m.Reason
		}
	}
	return "process " + p.Name + " has not written it"
}

// live lists the endpoints of the API that need a running process. Requests to these endpoints get status 400.
var live = []string{"deliveries", "stored", "report"}

// handler returns the handler for all paths of the process.
func (p *process) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(fleetapi.Root, p.api.Handler())
	for _, name := range live {
		mux.HandleFunc(fleetapi.Root+name, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, name+" is answered by a running control plane, not by a report", http.StatusBadRequest)
		})
	}
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"version": p.Version, "golang_version": p.Go, "platform": p.Platform})
	})
	mux.Handle("/debug/", p.debug)
	return mux
}

// pages returns the handler of /debug. The pages that reports contain (collect.Pages) are served unchanged, or with
// status 404 if this report lacks the page. navarchd's handlers compute all other pages.
func (p *process) pages() http.Handler {
	mux := http.NewServeMux()
	for name, path := range collect.Pages() {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			raw, ok := p.Pages[name]
			if !ok {
				http.Error(w, "the report does not have "+path+": "+p.why(name), http.StatusNotFound)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(raw)
		})
	}
	mux.Handle("/debug/", inspect.Handler(inspect.Config{ID: p.Name, Version: p.Version,
		Streams:  func(id string) []inspect.Stream { return proxies{p}.Streams(nil, id) },
		Snapshot: func() *mirror.Snapshot { return p.snapshot },
		Problems: func() []inspect.Problem { return apiPages{p}.Problems(nil) }}))
	return mux
}

// apiPages provides pages and previews of a process to the API (api.Pages).
type apiPages struct{ *process }

// PlanRoom reserves memory for the body of a plan request, with navarchd's handler. Results and errors are those of
// debug.Pages.PlanRoom.
func (p apiPages) PlanRoom(who authz.Caller, bytes int) (release func(), err error) {
	return p.previews.PlanRoom(who, bytes)
}

// PlanBody reads the body of a plan request with navarchd's handler. Results and errors are those of
// debug.Pages.PlanBody.
func (p apiPages) PlanBody(ctx context.Context, who authz.Caller, w http.ResponseWriter, r *http.Request,
) (body []byte, done func(), status int, err error) {
	return p.previews.PlanBody(ctx, who, w, r)
}

// Plan computes the preview of a change with navarchd's handler. Results and errors are those of debug.Pages.Plan.
func (p apiPages) Plan(ctx context.Context, who authz.Caller, body []byte, q url.Values) (*preview.Report, int, error) {
	return p.previews.Plan(ctx, who, body, q)
}

// Turn returns at once, because there are no other callers to wait for. The returned functions do nothing, and the
// error is always nil.
func (apiPages) Turn(context.Context, authz.Caller, bool) (made, read func(), err error) {
	return func() {}, func() {}, nil
}

// Render returns the HTTP status and the body of a page of /debug. Every caller may see all pages.
func (p apiPages) Render(ctx context.Context, _ authz.Caller, path string, q url.Values) (code int, body []byte) {
	answer := web.NewRecorder()
	r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: path, RawQuery: q.Encode()}, Header: http.Header{}}
	p.debug.ServeHTTP(answer, r.WithContext(ctx))
	return answer.Code, answer.Body.Bytes()
}

// Problems returns the problems in the report; nil if the report lacks them. Every caller may see all problems.
func (p apiPages) Problems(authz.Visible) (all []inspect.Problem) {
	_ = p.decode("problems", &all) // the API has refused a page that the report lacks
	return all
}

// Patches returns the patches in the report; nil if the report lacks them. Every caller may see all patches.
func (p apiPages) Patches(authz.Visible) (all []inspect.Patch) {
	_ = p.decode("patches", &all) // the API has refused a page that the report lacks
	return all
}

// peers provides the answers of the other processes (api.Replicas), and the processes that the report lacks.
type peers struct {
	self    *process
	all     []*process
	missing []report.Missing
}

// Ask returns the answer of each other process that served proxies, and an error for each process that the report
// lacks. For problems it also returns the answers of processes that served no proxies. Ask ignores the time limit.
func (s peers) Ask(ctx context.Context, q ask.Question, _ time.Duration) (heard []ask.Heard) {
	for _, p := range s.all {
		if p != s.self && (p.serves() || q.Endpoint == "problems") {
			heard = append(heard, ask.Heard{Replica: p.Name, Reply: p.api.Asked(ctx, q)})
		}
	}
	for _, m := range s.missing {
		heard = append(heard, ask.Heard{Replica: m.Name, Err: errors.New("it is not in the report: " + m.Reason)})
	}
	return heard
}
