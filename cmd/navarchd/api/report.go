package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/cmd/navarchd/collect"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
)

// Parameters of the endpoint report.
const (
	contentsParameter = "contents" // report.Contents
	recordsParameter  = "records"  // "false": without the records of the store; mostly sent by replicas
)

// partTime is the time in which a replica makes its part, in addition to the time between two readings of metrics. A
// replica that hangs is not asked (endpoint.probes), so it does not use up this time.
const partTime = 45 * time.Second

// archive is an answer in the form of a file: a tar archive, compressed with gzip.
type archive []byte

// archived is the part of one process. Its archive has no end-of-archive mark, so that further entries can be appended.
type archived struct {
	Archive []byte `json:"archive"`
}

// contentsOf parses the parameters. Errors name the parameter.
func contentsOf(q url.Values) (want collect.Want, err error) {
	want.Contents = report.Full
	if text := q.Get(contentsParameter); text != "" {
		want.Contents = report.Contents(text)
	}
	if want.Contents != report.Full && want.Contents != report.Brief {
		return want, fmt.Errorf("%s=%.30q: want %s or %s", contentsParameter, want.Contents, report.Full, report.Brief)
	}
	for _, name := range []string{recordsParameter, aloneParameter} {
		if text := q.Get(name); text != "" && text != "true" && text != "false" {
			return want, fmt.Errorf("%s=%.30q: want true or false", name, text)
		}
	}
	want.Records = q.Get(recordsParameter) != "false"
	return want, nil
}

// reportTime returns the time in which a replica makes its part. The error is that of contentsOf.
func reportTime(q url.Values) (time.Duration, error) {
	want, err := contentsOf(q)
	if want.Contents == report.Full {
		return partTime + collect.Between, err
	}
	return partTime, err
}

// asked returns the parameters for the other replicas. If this process adds the store's records to a report, the other
// replicas must omit these records.
func (e *endpoint) asked(a *API, q url.Values) url.Values {
	if e.probes && a.Proxies != nil {
		q = maps.Clone(q)
		q.Set(recordsParameter, "false")
	}
	return q
}

func reportPart(a *API, ctx context.Context, who authz.Caller, q url.Values) (any, error) {
	if a.Report == nil {
		return nil, statusError{http.StatusNotImplemented, "a report cannot be made from another report"}
	}
	want, err := contentsOf(q)
	if err != nil {
		return nil, err
	}
	made, err := a.Report(ctx, who, want)
	return archived{made}, err
}

// mergeReport concatenates the archives of all parts, and appends the index with the missing replicas. Errors: a wrong
// parameter, or an index that cannot be encoded.
func mergeReport(a *API, q url.Values, parts []replied, partial []fleetapi.Missing) (any, error) {
	want, err := contentsOf(q)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	index := report.Index{Contents: want.Contents, Created: now.UTC(), Version: a.Version, Asked: a.Self}
	var all archive
	for _, p := range parts {
		var one archived
		if err := json.Unmarshal(p.raw, &one); err != nil {
			partial = append(partial, fleetapi.Missing{Replica: p.replica, Reason: "its part cannot be read: " + err.Error()})
			continue
		}
		all = append(all, one.Archive...)
	}
	for _, m := range partial {
		index.Missing = append(index.Missing, report.Missing{Name: m.Replica, Reason: m.Reason})
	}
	last := report.NewWriter(now)
	if err := last.Index(index); err != nil {
		return nil, err
	}
	end, err := last.Member(false)
	return append(all, end...), err
}
