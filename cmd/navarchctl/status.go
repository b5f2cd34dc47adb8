package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/xds"
)

// proxyStatusHelp is the long help text of proxy-status.
const proxyStatusHelp = `First the sums: how many proxies are in sync, behind, refusing something, or gone (the stream ended in the last ten
minutes and the proxy has not come back; --where state=gone lists them), in all and by replica, version, zone and namespace.
REVISION is that of the last change of the proxy's own configuration, so it differs between proxies that are in sync. Then one line
for each proxy that is connected to the control plane, and for each type of resources one of

  NOT SENT  the proxy does not ask for the type, or has got nothing yet
  SYNCED    the proxy has the newest version of everything: it acknowledged it, or said so when it connected again
  PENDING   something is on its way (istioctl: STALE)
  WARMING   Envoy makes new clusters ready before it acknowledges any: it waits for DNS, a certificate or a health check. Nothing
            else waits for that; whether it refuses a cluster is not visible yet
  REFUSED   the proxy refused a version of something; it goes on with the last good one
  WITHHELD  several proxies refused a version, so it is sent to no proxy of the same view

With a name the lines below the table say which resources these are, which objects made them, and what the proxy said.`

func proxyStatusCommand() *cobra.Command {
	var (
		at       target
		format   output
		exitCode bool
		fleet    fleetFlags
	)
	cmd := &cobra.Command{
		Use:     "proxy-status [NAME[.NAMESPACE]|KIND/NAME]",
		Aliases: []string{"ps"},
		Short:   "Say which proxies are in sync, what they refused, and what is withheld from them",
		Long:    proxyStatusHelp,
		Example: `  # All proxies, of all replicas that the kubeconfig leads to.
  navarchctl proxy-status
  navarchctl ps --context west --revision canary

  # Those that are behind, the longest first; only sums, again and again.
  navarchctl ps --where state=behind --sort since --limit 20
  navarchctl ps -l app=web --where cluster=Kubernetes --limit 0 --watch

  # Sums as the replicas recorded them, also while some hang.
  navarchctl ps --recorded

  # One, with what it refused.
  navarchctl ps web-5d4f8c7b9-aaaaa.shop
  navarchctl ps web-5d4f8c7b9-aaaaa -n shop
  navarchctl ps deploy/web -n shop

  # Those that have gone, with the time.
  navarchctl ps --where state=gone -o wide

  # For a script: exit code 1 where something was refused or is withheld, or where a replica did not answer.
  navarchctl ps --exit-code >/dev/null`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: at.complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			defer at.close()
			bad, err := at.proxyStatus(cmd, args, &fleet, format)
			if err == nil && exitCode && bad > 0 {
				return errUnsound
			}
			return err
		},
	}
	at.bind(cmd)
	allNamespaces(cmd)
	fleet.bind(cmd)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false,
		"Exit with 1 where something was refused or is withheld, or a replica did not answer.")
	format.bindRows(cmd)
	return cmd
}

// proxyStatus prints the status of the fleet, or of the one proxy that args names. The result bad is the number of
// proxies with a refused or withheld resource, plus the number of replicas whose proxies may be missing.
func (t *target) proxyStatus(cmd *cobra.Command, args []string, fleet *fleetFlags, format output) (bad int, err error) {
	switch {
	case len(args) == 1 && fleet.used(cmd):
		return 0, errors.New("--where, --selector, --sort, --limit, --watch and --recorded are for all proxies, not for NAME")
	case fleet.recorded:
		return t.recordedStatus(cmd, fleet, format)
	}
	err = errNoAPI
	if len(args) == 0 && (format.forPeople() || format == nameFormat || fleet.used(cmd)) {
		bad, err = t.fleetStatus(cmd, fleet, format)
	}
	if (errors.Is(err, errNoAPI) || errors.Is(err, errAskEach)) && !fleet.used(cmd) { // replicas of an older version
		return t.printStatus(cmd, args, format)
	}
	return bad, err
}

// printStatus prints the status of each proxy by itself, with what it refused. Replicas of older versions list it, too.
// The result bad is the number of proxies with a refused or withheld resource, plus the number of replicas whose
// proxies may be missing.
func (t *target) printStatus(cmd *cobra.Command, args []string, format output) (bad int, err error) {
	all, partial, err := t.status(cmd, args)
	if err != nil {
		return 0, err
	}
	r := rows{value: all, table: func(w io.Writer, wide bool) error { return statusTable(w, all, len(args) == 1, wide) }}
	for _, p := range all {
		r.names = append(r.names, p.Proxy)
	}
	if err = format.write(cmd, r); err == nil && format.forPeople() {
		err = t.warnOfRemovals(cmd)
	}
	if err == nil {
		err = t.warnOfMissing(cmd.ErrOrStderr(), "proxies", partial)
	}
	if err == nil {
		statusNext(cmd, all, len(args) == 1, format)
	}
	bad = len(faulty(all))
	if len(args) == 0 { // a named proxy was found, so missing replicas do not matter
		bad += t.silent + len(partial)
	}
	return bad, err
}

// statusNext suggests the next command. If one is true, a single proxy was requested.
func statusNext(cmd *cobra.Command, all []proxyStatus, one bool, format output) {
	bad := faulty(all)
	switch {
	case one:
		goesOn(cmd, format, "what the proxy was sent", "proxy-config", "all", all[0].Proxy)
	case len(bad) > 0:
		goesOn(cmd, format, "what it refused, or what is withheld from it", "proxy-status", bad[0])
	default:
		goesOn(cmd, format, "what is wrong with the configuration", "problems")
	}
}

// warnOfRemovals prints a warning if objects disappeared without a deletion, and the control plane still serves them
// (held removals). It ignores failed requests, because replicas of older versions do not list held removals. The error
// is that of the write to standard error.
func (t *target) warnOfRemovals(cmd *cobra.Command) error {
	held, err := t.anyRemovals(cmd.Context())
	if err != nil || len(held.Held) == 0 {
		return nil
	}
	objects := 0
	for _, h := range held.Held {
		objects += h.Count
	}
	_, err = fmt.Fprintf(cmd.ErrOrStderr(),
		"\nwarning: %d objects vanished though nobody deleted them, and are held as they were: navarchctl removals list\n", objects)
	return err
}

// status reads the state of the proxies of all replicas, sorted by name. It returns the proxies with the name in args,
// or without a name the proxies in the namespace of --namespace, and the replicas that are not in the answer. status
// fails if the named proxy is not connected.
func (t *target) status(cmd *cobra.Command, args []string) (all []proxyStatus, partial []fleetapi.Missing, err error) {
	name := ""
	if len(args) == 1 {
		if name, err = t.resolve(cmd.Context(), args[0]); err != nil {
			return nil, nil, err
		}
	}
	all, partial, err = t.statuses(cmd.Context(), name)
	if err == nil && name != "" && len(all) == 0 {
		if err = t.warnOfMissing(cmd.ErrOrStderr(), "proxies", partial); err == nil {
			err = fmt.Errorf("proxy %q is not connected to %s%s", name, t.where, t.departed(cmd.Context(), name))
		}
	}
	return all, partial, err
}

// statuses reads the state of the proxies with a name. An empty name selects the proxies in the namespace of
// --namespace. Results and errors are those of askFleets.
func (t *target) statuses(ctx context.Context, name string) ([]proxyStatus, []fleetapi.Missing, error) {
	q := url.Values{"name": {name}}
	if name == "" {
		q.Set("namespace", t.namespace)
	}
	type parts = []fleetapi.From[[]proxyStatus]
	answer, err := askFleets(ctx, &t.controlPlane, "syncz", q, func(of parts) (a fleetapi.Answer[proxyStatus]) {
		for _, f := range of {
			for _, p := range f.Part {
				if len(t.pods) > 0 { // a replica of an older version does not state its name
					p.replica = cmp.Or(p.replica, f.Replica)
				}
				own := name == p.Proxy || name == p.Node
				if name == "" {
					own = t.namespace == "" || strings.HasSuffix(p.Proxy, "."+t.namespace)
				}
				if own { // a replica of an older version states all
					a.Items = append(a.Items, p)
				}
			}
		}
		slices.SortStableFunc(a.Items, func(a, b proxyStatus) int { return cmp.Compare(a.Proxy, b.Proxy) })
		return a
	})
	return append([]proxyStatus{}, answer.Items...), answer.Partial, err
}

// faulty returns the names of the proxies with a refused or withheld resource.
func faulty(all []proxyStatus) (names []string) {
	for _, p := range all {
		for _, s := range p.types {
			if len(s.Refused)+len(s.Withheld) > 0 {
				names = append(names, p.Proxy)
				break
			}
		}
	}
	return names
}

func statusTable(w io.Writer, all []proxyStatus, details, wide bool) error {
	rows := [][]string{{"NAME", "CLUSTER", "CDS", "LDS", "EDS", "RDS", "REVISION", "REFUSED", "WITHHELD"}}
	inCluster := slices.ContainsFunc(all, func(p proxyStatus) bool { return p.replica != "" })
	if inCluster {
		rows[0] = append(rows[0], "REPLICA")
	}
	if wide {
		rows[0] = append(rows[0], "VERSION")
	}
	for _, p := range all {
		row := []string{p.Proxy, p.Cluster}
		for _, t := range []xds.Type{xds.Cluster, xds.Listener, xds.Endpoint, xds.Route} {
			row = append(row, p.types[t].Word())
		}
		refused, withheld := 0, 0
		for _, s := range p.types { // includes Secrets
			refused, withheld = refused+len(s.Refused), withheld+len(s.Withheld)
		}
		row = append(row, p.Revision.String(), fmt.Sprint(refused), fmt.Sprint(withheld))
		if inCluster {
			row = append(row, strings.TrimPrefix(p.replica, "Pod "))
		}
		if wide {
			row = append(row, cmp.Or(p.Version, "-"))
		}
		rows = append(rows, row)
	}
	if err := show.Table(w, rows); err != nil {
		return err
	}
	if n := len(faulty(all)); n > 0 && !details {
		_, err := fmt.Fprintf(w, "\n%d of %d proxies refused something, or something is withheld from them\n", n, len(all))
		return err
	}
	for _, p := range all {
		if err := statusDetails(w, p); err != nil {
			return err
		}
	}
	return nil
}

// statusDetails prints the warming clusters of one proxy, and its refused and withheld resources.
func statusDetails(w io.Writer, p proxyStatus) error {
	if warming := p.types[xds.Cluster].Warming; warming != nil {
		if err := printDetails(w, warmingLines(warming), nil, ""); err != nil {
			return err
		}
	}
	for t := range xds.NumTypes {
		for _, r := range p.types[t].Refused {
			name := r.Name
			if name == "" {
				name = "(not identified yet)"
			}
			lines := []string{fmt.Sprintf("REFUSED %s %s, version %s; %s", t.Noun(), name, r.Version, has(r.Good))}
			if !r.Last.IsZero() {
				lines = append(lines, "refused at "+r.Last.UTC().Format(time.RFC3339))
			}
			if err := printDetails(w, lines, r.Objects, r.Text); err != nil {
				return err
			}
		}
		for _, h := range p.types[t].Withheld {
			lines := []string{fmt.Sprintf("WITHHELD %s %s, version %s; %s", t.Noun(), h.Name, h.Version, has(h.Good)),
				fmt.Sprintf("refused by %d distinct identities, from %s to %s",
					h.RefusedBy, h.First.UTC().Format(time.RFC3339), h.Last.UTC().Format(time.RFC3339))}
			if err := printDetails(w, lines, h.Objects, h.Text); err != nil {
				return err
			}
		}
	}
	return nil
}

// warmingLines describes since when a proxy has been warming clusters, and which clusters these may be.
func warmingLines(warming *inspect.Warming) (lines []string) {
	if warming.NotRequested {
		lines = append(lines,
			"WARMING: the proxy connected again while a cluster warmed, and does not ask for clusters; it is sent them all the same")
	} else {
		lines = append(lines, "WARMING since "+warming.Since.UTC().Format(time.RFC3339)+
			": the proxy acknowledges no clusters before all are warm")
	}
	if len(warming.Clusters) > 0 {
		may := "one of these may warm: " + strings.Join(warming.Clusters, ", ")
		if warming.More > 0 {
			may += fmt.Sprintf(", or one of %d others", warming.More)
		}
		lines = append(lines, may)
	}
	return lines
}

// has describes the version of a resource that the proxy uses. An empty version means that the proxy uses no version.
func has(good string) string {
	if good == "" {
		return "the proxy has no version"
	}
	return "the proxy has version " + good
}

func printDetails(w io.Writer, lines, objects []string, said string) error {
	if len(objects) > 0 {
		lines = append(lines, "made by "+strings.Join(objects, ", "))
	}
	if said != "" {
		lines = append(lines, "the proxy said: "+said)
	}
	for i, line := range lines {
		prefix := "  "
		if i == 0 {
			prefix = "\n"
		}
		if _, err := fmt.Fprintf(w, "%s%s\n", prefix, show.Printable(line)); err != nil {
			return err
		}
	}
	return nil
}
