// Package collect makes this process's part of a report. A report is the archive that `navarchctl bug-report` or
// `navarchctl snapshot save` writes.
//
// Owns: the last lines of the log.
// Reads: the pages of /debug, the streams of proxies, metrics, goroutines.
// Never: writes a private key, or a value that looks like a credential (store/cut); waits for etcd longer
// than pageTime for each page; makes two parts at once.
package collect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/store/obs"
)

// Between is the shortest time between the two readings of the metrics in a full report.
const Between = 10 * time.Second

// pageTime is the time limit for rendering one page. Some pages read etcd.
const pageTime = time.Second

// Collector makes parts of reports. Make one with New. Part may be called by any goroutine.
type Collector struct {
	// Facts are the facts about this process that do not change: name, zone, roles, flags, environment, cluster, and
	// the options by which objects are converted to records.
	Facts report.Facts
	Pages *debug.Pages // required
	// Changes returns the newest changes. The function sees selects the visible namespaces. Changes without visible
	// objects are included only if all is true. Required if Pages has Proxies.
	Changes func(sees func(namespace string) bool, all bool) []ledger.Report
	Lines   *Lines              // newest lines of the log; required
	Metrics prometheus.Gatherer // required

	busy chan struct{}
}

// New returns a copy of c that is ready for use. It does not check the required fields.
func New(c Collector) *Collector {
	c.busy = make(chan struct{}, 1)
	return &c
}

// Want selects the content of a part. The part has metrics, goroutines, log, flags and environment only if Contents is
// report.Full.
type Want struct {
	Contents report.Contents
	Records  bool // include the records of the store that this process has read, if it serves proxies
}

// paged lists the pages of /debug in a report. The field called name is the name of the page's entry in the archive,
// without .json.
var paged = []struct {
	name, path string
	query      url.Values
}{
	{"problems", "/debug/problems", nil}, {"patches", "/debug/patches", nil}, {"removals", "/debug/removals", nil},
	{"snapshot", "/debug/snapshot", nil}, {"commits", "/debug/commits", nil}, {"clusterz", "/debug/clusterz", nil},
	{"leader", "/debug/leader", nil}, {"fleet", "/debug/fleet", url.Values{"owners": {"true"}}},
}

// Pages returns the paths of the pages in a report, by the names of their entries without .json. The caller owns the
// map.
func Pages() map[string]string {
	all := map[string]string{}
	for _, p := range paged {
		all[p.name] = p.path
	}
	return all
}

// Names of further entries of the archive, without .json. Only processes that serve proxies have these entries.
const (
	Changes  = "changes"  // newest changes (Collector.Changes)
	Departed = "departed" // proxies whose streams ended lately
)

// Part makes the part of this process: entries of a tar archive as one gzip member, without the end-of-archive mark. A
// full part takes at least 10 seconds (Between). The facts of the part list missing entries. An entry is missing if its
// page cannot be rendered for the caller, if metrics cannot be read, or if records are not read yet.
//
// The error is web.ErrBusy if another part is being made. Part also fails if ctx ends before the second reading of the
// metrics, or if an entry cannot be encoded.
func (c *Collector) Part(ctx context.Context, who authz.Caller, want Want) ([]byte, error) {
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	default:
		return nil, fmt.Errorf("another report is being made: %w", web.ErrBusy)
	}
	began := time.Now()
	p := &part{Collector: c, out: report.NewPart(c.Facts.Name, began), facts: c.Facts}
	p.facts.Created = began.UTC()
	if want.Contents == report.Full {
		p.metrics("metrics-1.txt")
		p.text("goroutines.txt", goroutines())
		p.text("log.txt", c.Lines.Text())
	} else {
		p.facts.Flags, p.facts.Environment = nil, nil
	}
	p.pages(ctx, who)
	p.proxies(want.Records)
	if want.Contents == report.Full {
		select {
		case <-time.After(time.Until(began.Add(Between))):
			p.metrics("metrics-2.txt")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	p.failed = errors.Join(p.failed, p.out.Facts(&p.facts))
	if p.failed != nil {
		return nil, p.failed
	}
	return p.out.Member(false)
}

// part is one part of a report while it is being made.
type part struct {
	*Collector
	out    *report.Writer
	facts  report.Facts
	failed error
}

// missing records that an entry could not be made.
func (p *part) missing(what, why string) {
	p.facts.Missing = append(p.facts.Missing, report.Missing{Name: what, Reason: why})
}

func (p *part) text(name string, text []byte) {
	p.failed = errors.Join(p.failed, p.out.Text(name, text))
}

func (p *part) json(name string, v any) {
	p.failed = errors.Join(p.failed, p.out.JSON(name+".json", v))
}

// metrics adds an entry with the present values of all metrics.
func (p *part) metrics(name string) {
	families, err := p.Metrics.Gather()
	if err != nil {
		p.missing(name, err.Error())
	}
	var out bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&out, family); err != nil {
			p.missing(name, err.Error())
		}
	}
	p.failed = errors.Join(p.failed, p.out.Add(name, out.Bytes()))
}

// goroutines returns the stacks of this process's goroutines. It lists equal stacks once.
func goroutines() []byte {
	var out bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&out, 1) // a buffer does not fail
	return out.Bytes()
}

// pages adds the pages of /debug (paged).
func (p *part) pages(ctx context.Context, who authz.Caller) {
	for _, page := range paged {
		ctx, cancel := context.WithTimeout(ctx, pageTime)
		code, body := p.Pages.Render(ctx, who, page.path, page.query)
		cancel()
		if code != http.StatusOK || !json.Valid(body) {
			p.missing(page.path, strings.TrimSpace(string(body)))
			continue
		}
		p.json(page.name, json.RawMessage(body))
	}
}

// everything selects all namespaces.
func everything(string) bool { return true }

// proxies adds the proxies. If records is true, it also adds the store's records.
func (p *part) proxies(records bool) {
	served := p.Pages.Proxies
	if served == nil {
		return
	}
	p.facts.Served, p.facts.Notified = served.Planned()
	sets := &report.Sets{}
	all := served.Archive(sets)
	p.failed = errors.Join(p.failed, p.out.Proxies(all, sets))
	p.json("quarantine", served.Server.Withheld())
	p.json(Departed, served.Departed(everything))
	p.json(Changes, p.Changes(everything, true))
	snapshot := served.Mirror.Current()
	switch {
	case !records:
	case snapshot == nil:
		p.missing("records", "this process has not read them yet")
	default:
		p.failed = errors.Join(p.failed, p.out.Records(snapshot))
	}
}

// Build returns a copy of f with the facts of this build: version, Go version and platform.
func Build(f report.Facts) report.Facts {
	f.Version, f.Go, f.Platform = obs.Version, runtime.Version(), obs.Platform()
	return f
}
