package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"navarch.io/navarch/cmd/navarchctl/analyze"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/cmd/navarchd/api"
	"navarch.io/navarch/push/inspect"
)

// ask adds the problems and the counts of patches that the control plane reports. It omits problems above the maximum
// number that askAll reads. Without the counts of all replicas, it omits the counts and prints a note. An error means
// that the control plane did not answer.
func (a *analysis) ask(ctx context.Context, in *analyze.Input, notes io.Writer) error {
	at := controlPlane{server: a.server, cluster: a.in, fallback: defaultServer, everyRole: true}
	defer at.close()
	problems, err := at.problems(ctx, url.Values{})
	if err != nil {
		return err
	}
	for _, p := range problems.Items {
		in.Reported = append(in.Reported, analyze.Reported{Object: p.Object, Location: p.Location, Field: p.Field, Analyzer: p.Analyzer,
			Message: p.Message, Proxies: p.Proxies})
	}
	for _, m := range problems.Partial {
		fmt.Fprintln(notes, "note: problems that process "+show.Printable(m.Replica)+" alone knows are not in the findings: "+
			show.Printable(m.Reason))
	}
	if in.Patches, err = a.patchCounts(ctx); err != nil {
		fmt.Fprintln(notes, "note: patches without effect are not known (NAV1012): "+
			show.Printable(strings.ReplaceAll(err.Error(), "\n", " ")))
	}
	return nil
}

// patchCounts returns the patches of EnvoyFilters with their largest counts, or nil if no proxy is connected. It
// returns an error if a replica does not answer, because a patch may have an effect only at that replica. Only
// processes that serve proxies are asked, because other processes list no patches.
func (a *analysis) patchCounts(ctx context.Context) ([]inspect.Patch, error) {
	at := controlPlane{server: a.server, cluster: a.in, fallback: defaultServer}
	defer at.close()
	replicas, err := askAll[api.Replica](ctx, &at, "replicas", url.Values{})
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(replicas.Items, func(r api.Replica) bool { return r.Proxies > 0 }) {
		return nil, nil
	}
	counts, err := at.patches(ctx)
	if err != nil {
		return nil, err
	}
	if counts.Schema == "" {
		return nil, errors.New("replicas of this version do not count for all replicas")
	}
	if missing := max(len(counts.Partial), at.silent, len(replicas.Partial)); missing > 0 {
		return nil, fmt.Errorf("%d of %d replicas did not answer", missing, max(missing, len(replicas.Items)))
	}
	return counts.Items, nil
}
