package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"navarch.io/navarch/cmd/navarchd/api/ask"
	"navarch.io/navarch/cmd/navarchd/collect"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/describe"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/shard/member"
)

// Config has the sources of the answers. Rules and Pages are required. Its functions and interfaces must be safe for
// concurrent use.
type Config struct {
	Self    string            // name of this process
	Zone    string            // zone of this process; empty: unknown
	Version string            // version of this process's build
	Rules   *authz.Authorizer // authorises callers
	Pages   Pages             // pages of /debug
	Proxies Proxies           // nil: the process does not serve proxies
	// Ledger records which changes the proxies of this process have acknowledged. nil: the process does not serve
	// proxies, or it only shows a saved report (navarchctl --snapshot).
	Ledger *ledger.Ledger
	// Server reports which changes the proxies have not acknowledged; nil if Ledger is nil.
	Server *serve.Server
	// Changes returns the visible changes in the ledger, newest first. The argument all states that the caller sees
	// everything. Changes is nil if the process does not serve proxies.
	Changes func(sees func(namespace string) bool, all bool) []ledger.Report
	Now     func() time.Time // nil: the clock of this machine
	// Report makes this process's part of a report, as collect.Collector.Part does; nil: the process only shows a saved
	// report.
	Report func(ctx context.Context, who authz.Caller, want collect.Want) ([]byte, error)
	// Replicas sends questions to the other replicas; nil: this process is alone, as with an embedded etcd.
	Replicas Replicas
	// Members returns the records of the fleet; nil before they are known. The function is nil if the process is alone,
	// or only shows a saved report.
	Members func() []member.Record
	// Describe describes a subject from the plan of this process; nil: the process serves no proxies.
	Describe func(of describe.Query, sees func(namespace string) bool) (describe.Part, error)
	// Fleet has the records of the replicas; nil if the process is alone, or only shows a saved report.
	Fleet *Fleet
	// Objects reports whether this process, if it leads, has stored an object; nil: the process does not have role
	// ingest.
	Objects Objects
	// Leader returns the name of the process that leads; empty: unknown. nil: no process leads, as in a saved report.
	Leader func() string
	// Lacks returns why a saved report does not have a list of this process. nil: the process runs.
	Lacks func(page string) error
}

// Pages are the pages of /debug, of this process (debug.Pages) or in a saved report.
type Pages interface {
	// Turn waits until a caller may be answered. If it returns no error, call made when the answer is complete, and
	// read when the client has received the answer. Errors are those of web.Turns.Take: web.ErrBusy, or that of ctx.
	Turn(ctx context.Context, who authz.Caller, costly bool) (made, read func(), err error)
	// Render returns the HTTP status and the content of a page. It waits for the caller's turn. Render does not check
	// whether the client may see the page.
	Render(ctx context.Context, who authz.Caller, path string, q url.Values) (code int, body []byte)
	// PlanRoom reserves memory for the body of another replica's request for a preview, until release is called.
	PlanRoom(who authz.Caller, bytes int) (release func(), err error)
	// PlanBody reads the body of a request for a preview. The result done is a function, never nil, which must be
	// called once the response is written. With an error, status is the HTTP status of the response.
	PlanBody(ctx context.Context, who authz.Caller, w http.ResponseWriter, r *http.Request) (body []byte, done func(), status int, err error)
	// Plan waits for the caller's turn, and previews the change in a body. With an error, status is the HTTP status of
	// the response.
	Plan(ctx context.Context, who authz.Caller, body []byte, q url.Values) (report *preview.Report, status int, err error)
	// Problems returns all problems that the process knows and the caller may see.
	Problems(sees authz.Visible) []inspect.Problem
	// Patches returns the patches of EnvoyFilters that the caller may see, with the number of resources that each
	// changes for the proxies of the process.
	Patches(sees authz.Visible) []inspect.Patch
}

// Proxies are the connected proxies, of this process (debug.Proxies) or in a saved report.
type Proxies interface {
	// Streams returns the visible streams of one proxy. id is the node's ID or name.namespace. If id is empty, Streams
	// returns the visible streams of all proxies. If sees is nil, all streams are visible.
	Streams(sees authz.Visible, id string) []inspect.Stream
	// Departed lists the visible streams that ended in the last 10 minutes (debug.LeftFor), as debug.Proxies.Departed
	// does. A proxy may have several of them.
	Departed(sees func(namespace string) bool) []debug.Left
	// Planned returns the store's revision that the process serves, and the revision up to which its proxies are
	// notified. Both are 0 until they are known.
	Planned() (serves, notified int64)
	// Connected returns the number of streams.
	Connected() int
	// ConfigCluster returns the name of the config cluster.
	ConfigCluster() string
}

// Replicas sends questions to the other replicas (ask.Replicas).
type Replicas interface {
	Ask(ctx context.Context, q ask.Question, wait time.Duration) []ask.Heard // as ask.Replicas.Ask
}
