package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/xds"
)

// fleetFlags are the flags of proxy-status that need /api/v1/proxies or /api/v1/sums.
type fleetFlags struct {
	where    []string
	selector string
	sort     string
	limit    int
	watch    bool
	recorded bool
}

// wheres lists the valid keys of --where.
var wheres = []string{"state", "version", "zone", "replica", "cluster"}

func (f *fleetFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.where, "where", nil, "Only proxies with KEY=VALUE, of the keys "+strings.Join(wheres, ", ")+
		"; states are \""+strings.Join(fleetapi.States, "\", \"")+"\". With several --where, all must match.")
	cmd.Flags().StringVarP(&f.selector, "selector", "l", "", "Only proxies whose labels match, as app=web,tier!=cache.")
	f.sort = fleetapi.Orders[0]
	cmd.Flags().Var(&choice{&f.sort, "order", fleetapi.Orders}, "sort",
		"Order: "+strings.Join(fleetapi.Orders, ", ")+" (since: longest out of sync first).")
	cmd.Flags().IntVar(&f.limit, "limit", fleetapi.DefaultLimit, "The most proxies that are listed; 0: sums only.")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "Print again every two seconds.")
	cmd.Flags().BoolVar(&f.recorded, "recorded", false,
		"Only the sums that each replica recorded last, with their age: no replica is asked for its proxies.")
	for _, name := range []string{"where", "selector", "sort", "limit"} {
		cmd.MarkFlagsMutuallyExclusive("recorded", name)
	}
	completes(cmd, "sort", fleetapi.Orders...)
}

// used reports whether one of these flags is set. Replicas of older versions lack /api/v1, and cannot apply the flags.
func (f *fleetFlags) used(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"where", "selector", "sort", "limit", "watch", "recorded"}, cmd.Flags().Changed)
}

// query returns the parameters of a request to /api/v1/proxies. An empty namespace selects all namespaces. An error
// names the flag with an invalid value: --limit or --where.
func (f *fleetFlags) query(namespace string) (url.Values, error) {
	q := url.Values{"sort": {f.sort}, "limit": {strconv.Itoa(f.limit)}}
	if f.limit < 0 || f.limit > fleetapi.MaxLimit {
		return nil, fmt.Errorf("--limit: %d; want 0 to %d", f.limit, fleetapi.MaxLimit)
	}
	for _, pair := range f.where {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !slices.Contains(wheres, key) || value == "" {
			return nil, fmt.Errorf("--where %s: want KEY=VALUE, KEY one of %s", pair, strings.Join(wheres, ", "))
		}
		if q.Has(key) {
			return nil, fmt.Errorf("--where: %s is listed twice", key)
		}
		if key == "state" {
			value = strings.ReplaceAll(value, "-", " ") // in-sync
		}
		q.Set(key, value)
	}
	for key, value := range map[string]string{"namespace": namespace, "labels": f.selector} {
		if value != "" {
			q.Set(key, value)
		}
	}
	return q, nil
}

// errAskEach reports that replicas cannot query each other, so navarchctl has to query every replica.
var errAskEach = errors.New("replicas cannot ask each other")

// fleetStatus prints the fleet's status once, or with --watch until the context ends. The result bad is the number of
// selected proxies with a refused or withheld resource, plus the number of replicas that are missing in the answer,
// plus the number of listed addresses that accept no connection. A replica may count twice. If the context ends with
// --watch, bad is 0. After errNoAPI or errAskEach, the caller may read /debug/syncz of every replica instead, but only
// if no flag in f is set. With such a flag, fleetStatus does not return errAskEach.
func (t *target) fleetStatus(cmd *cobra.Command, f *fleetFlags, format output) (bad int, err error) {
	q, err := f.query(t.namespace)
	if err != nil {
		return 0, err
	}
	for {
		answer, err := askAny[fleetapi.Proxy](cmd.Context(), &t.controlPlane, "proxies", q)
		if err != nil {
			return 0, err
		}
		if slices.ContainsFunc(answer.Partial, func(m fleetapi.Missing) bool { return m.Unable }) && len(t.found) > 1 && !f.used(cmd) {
			return 0, errAskEach
		}
		r := rows{value: answer, names: proxyNames(answer.Items),
			table: func(w io.Writer, wide bool) error { return fleetTable(w, answer, wide) }}
		err = format.write(cmd, r)
		if err == nil {
			err = t.warnOfMissing(cmd.ErrOrStderr(), "proxies", answer.Partial)
		}
		if err == nil && format.forPeople() && !f.watch {
			err = t.warnOfRemovals(cmd)
			fleetNext(cmd, answer, f, format)
		}
		if err != nil || !f.watch {
			return answer.Sums.Total.Refusing + len(answer.Partial) + t.silent, err
		}
		if !paused(cmd.Context(), watchEvery) {
			return 0, nil
		}
		if _, err := fmt.Fprintf(cmd.OutOrStdout(), "\n%s\n", time.Now().Format(time.TimeOnly)); err != nil {
			return 0, err
		}
	}
}

// watchEvery is the interval of --watch.
const watchEvery = 2 * time.Second

// paused waits for d and returns true. It returns false if the context ends earlier.
func paused(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// proxyNames returns the names of proxies.
func proxyNames(all []fleetapi.Proxy) (names []string) {
	for i := range all {
		names = append(names, all[i].Proxy)
	}
	return names
}

// fleetTable prints the sums, then the listed proxies, then the number of selected proxies beyond --limit.
func fleetTable(w io.Writer, a fleetapi.Answer[fleetapi.Proxy], wide bool) error {
	if err := sumsTable(w, a.Sums); err != nil {
		return err
	}
	if len(a.Items) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	rows := [][]string{{"NAME", "CLUSTER", "CDS", "LDS", "EDS", "RDS", "REVISION", "REFUSED", "WITHHELD", "REPLICA"}}
	if wide {
		rows[0] = append(rows[0], "STATE", "VERSION", "ZONE", "CONNECTED", "NODE")
	}
	for i := range a.Items {
		rows = append(rows, proxyRow(&a.Items[i], wide))
	}
	if err := show.Table(w, rows); err != nil {
		return err
	}
	total := a.Sums.Total.Connected()
	if a.Items[0].State == fleetapi.Gone {
		total = a.Sums.Total.Gone
	}
	if more := total - len(a.Items); a.Next != "" && more > 0 {
		_, err := fmt.Fprintf(w, "\n%s more proxies are not listed (--limit, --where, --selector)\n", show.Thousands(more))
		return err
	}
	return nil
}

// sumsTable prints the total, and a table with the values of each property (replica, version, zone, namespace) that has
// more than one value.
func sumsTable(w io.Writer, sums *fleetapi.Sums) error {
	c := sums.Total
	line := fmt.Sprintf("%s proxies: %s in sync, %s behind, %s refusing",
		show.Thousands(c.Connected()), show.Thousands(c.InSync), show.Thousands(c.Behind), show.Thousands(c.Refusing))
	if c.Gone > 0 {
		line += fmt.Sprintf(", %s gone", show.Thousands(c.Gone))
	}
	if _, err := fmt.Fprintln(w, line); err != nil {
		return err
	}
	rows := [][]string{{"BY", "VALUE", "IN SYNC", "BEHIND", "REFUSING", "GONE"}}
	for _, by := range []struct {
		name   string
		counts map[string]fleetapi.Counts
	}{{"replica", sums.Replicas}, {"version", sums.Versions}, {"zone", sums.Zones}, {"namespace", sums.Namespaces}} {
		rows = append(rows, sumRows(by.name, by.counts)...)
	}
	if len(rows) == 1 {
		return nil
	}
	return show.Table(w, rows)
}

// mostSums is the highest number of values of one property that are printed.
const mostSums = 10

// sumRows returns the rows of one property, at most mostSums values and a row that counts the others. The values are
// sorted by the number of refusing proxies, then of proxies that are behind, that have gone, and that are in sync, each
// in descending order. A property with fewer than two values gets no rows.
func sumRows(name string, counts map[string]fleetapi.Counts) (rows [][]string) {
	if len(counts) < 2 {
		return nil
	}
	values := make([]string, 0, len(counts))
	for value := range counts {
		values = append(values, value)
	}
	slices.SortFunc(values, func(a, b string) int {
		x, y := counts[a], counts[b]
		return cmp.Or(cmp.Compare(y.Refusing, x.Refusing), cmp.Compare(y.Behind, x.Behind), cmp.Compare(y.Gone, x.Gone),
			cmp.Compare(y.InSync, x.InSync), cmp.Compare(a, b))
	})
	for _, value := range values[:min(len(values), mostSums)] {
		c := counts[value]
		row := []string{name, cmp.Or(show.Printable(value), "-")}
		for _, n := range []int{c.InSync, c.Behind, c.Refusing, c.Gone} {
			row = append(row, strconv.Itoa(n))
		}
		rows = append(rows, row)
	}
	if more := len(values) - mostSums; more > 0 {
		rows = append(rows, []string{name, fmt.Sprintf("(%d more)", more), "", "", "", ""})
	}
	return rows
}

// proxyRow returns the table row of one proxy. If wide is true, it adds the columns of -o wide.
func proxyRow(p *fleetapi.Proxy, wide bool) []string {
	row := []string{show.Printable(p.Proxy), show.Printable(p.Cluster)}
	for _, t := range []xds.Type{xds.Cluster, xds.Listener, xds.Endpoint, xds.Route} {
		row = append(row, cmp.Or(p.Types[t.Noun()], "NOT SENT"))
	}
	row = append(row, strconv.FormatInt(p.Revision, 10), strconv.Itoa(p.Refused), strconv.Itoa(p.Withheld), show.Printable(p.Replica))
	connected := p.Connected.UTC().Format(time.RFC3339)
	if p.State == fleetapi.Gone {
		connected = "until " + p.Since.UTC().Format(time.RFC3339)
		for i := 2; i < len(row)-1; i++ {
			row[i] = "-" // a proxy that has gone has no state of its types
		}
	}
	if wide {
		row = append(row, p.State, cmp.Or(p.Version, "-"), cmp.Or(p.Zone, "-"), connected, p.Node)
	}
	return row
}

// departed returns a text that states when, and at which replica, the stream of a proxy ended. The text is empty if the
// control plane does not know such an end, or the stream ended more than ten minutes ago.
func (t *target) departed(ctx context.Context, name string) string {
	a, err := askAny[fleetapi.Proxy](ctx, &t.controlPlane, "proxies", url.Values{"name": {name}, "state": {fleetapi.Gone}})
	if err != nil || len(a.Items) == 0 { // an older version has no such state
		return ""
	}
	p := &a.Items[0]
	return show.Printable(fmt.Sprintf("; its stream to replica %s ended at %s", p.Replica, p.Since.UTC().Format(time.RFC3339)))
}

// fleetNext suggests the next command. The command is about a proxy with a refused or withheld resource. Without such a
// proxy it is about proxies that are behind, and without these about proxies that have gone. With --where state=...,
// proxies that are behind or have gone do not count. Without any of these proxies, fleetNext suggests the command
// problems. If --namespace is set and no proxy matches, fleetNext prints a note before the suggestion.
func fleetNext(cmd *cobra.Command, a fleetapi.Answer[fleetapi.Proxy], f *fleetFlags, format output) {
	c := a.Sums.Total
	if c.Connected()+c.Gone == 0 && cmd.Flags().Changed("namespace") {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: no proxy matches; without --namespace, --where and --selector all are listed")
	}
	bad := slices.IndexFunc(a.Items, func(p fleetapi.Proxy) bool { return p.Refused+p.Withheld > 0 })
	switch states := slices.ContainsFunc(f.where, func(pair string) bool { return strings.HasPrefix(pair, "state=") }); {
	case bad >= 0:
		goesOn(cmd, format, "what it refused, or what is withheld from it", "proxy-status", a.Items[bad].Proxy)
	case c.Refusing > 0:
		goesOn(cmd, format, "the proxies that refuse something", "proxy-status", "--where", "state=refusing")
	case c.Behind > 0 && !states:
		goesOn(cmd, format, "the proxies that are behind, the longest first", "proxy-status", "--where", "state=behind", "--sort", "since")
	case c.Gone > 0 && !states:
		goesOn(cmd, format, "the proxies that have gone", "proxy-status", "--where", "state=gone", "-o", "wide")
	default:
		goesOn(cmd, format, "what is wrong with the configuration", "problems")
	}
}
