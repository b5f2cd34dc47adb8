package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/report"
	"navarch.io/navarch/cmd/navarchctl/analyze"
	"navarch.io/navarch/push/inspect"
)

// ofReport analyses a report (the archive of --snapshot): the problems that the leader and the replicas had found, and
// the records. It prints the codes that are not checked, with the reasons. A report contains records, not the objects
// that analyze reads. Therefore a report cannot be combined with files or a cluster. Errors: such a combination, or a
// report that cannot be read.
func (a *analysis) ofReport(cmd *cobra.Command) (all []analyze.Finding, err error) {
	if len(a.paths) > 0 || a.live || a.only {
		return nil, errors.New("--snapshot excludes --file, --live and --new: a report has no objects over which files could be analysed")
	}
	from := openedOf(cmd.Context()).report
	c, err := a.config(from.Index.Created)
	if err != nil {
		return nil, err
	}
	for _, p := range from.Processes {
		if p.Cluster != "" { // its options are those with which the records were made
			c.Normal, c.SystemNamespace = p.Normal, cmp.Or(p.Normal.SystemNamespace, c.SystemNamespace)
			c.Normal.Cluster = p.Cluster
			break
		}
	}
	notes := cmd.ErrOrStderr()
	at := controlPlane{everyRole: true}
	answers, err := gather[[]inspect.Problem](cmd.Context(), &at, "/debug/problems", notes)
	if err != nil {
		return nil, err
	}
	found := analyze.Recorded{Records: from.Snapshot, Patches: recordedPatches(cmd.Context(), from)}
	for _, p := range joinedProblems(answers, "", "") {
		found.Known = append(found.Known, analyze.Known(analyze.Finding{Code: cmp.Or(string(p.Analyzer), string(p.Code)),
			Severity: p.Severity, Object: p.Object, Field: p.Field, Message: p.Message}))
	}
	unchecked := found.Unchecked()
	for _, reason := range slices.Sorted(maps.Keys(unchecked)) {
		var codes []string
		for _, code := range unchecked[reason] {
			codes = append(codes, string(code))
		}
		fmt.Fprintf(notes, "note: not checked on a report: %s: %s\n", strings.Join(codes, ", "), reason)
	}
	return analyze.RunRecorded(found, c)
}

// recordedPatches returns the patches of EnvoyFilters with their largest counts, or nil if the report lacks a replica,
// its patches, or any proxy.
func recordedPatches(ctx context.Context, from *report.Report) []inspect.Patch {
	connected := slices.ContainsFunc(from.Processes, func(p *report.Process) bool { return len(p.Proxies) > 0 })
	at := controlPlane{}
	counts, err := gather[[]inspect.Patch](ctx, &at, "/debug/patches", io.Discard)
	if err != nil || at.silent > 0 || !connected || len(from.Index.Missing) > 0 {
		return nil
	}
	lists := [][]inspect.Patch{{}}
	for _, c := range counts {
		lists = append(lists, c.value)
	}
	return joinedPatches(lists)
}
