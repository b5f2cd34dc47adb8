package main

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
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/cmd/navarchd/controlz"
	"navarch.io/navarch/store/obs"
)

// controlZPort is the port of istiod's ControlZ interface. By default, navarchd shows and changes log levels at the
// same port.
const controlZPort = 9876

// levelChange is a new log level for one scope (a named group of log lines), or for all scopes.
type levelChange struct {
	scope string // empty: all scopes
	level string // empty: the level with which the process started
}

func logCommand() *cobra.Command {
	var (
		at     = controlPlane{everyRole: true}
		format output
		levels string
		reset  bool
		port   int
	)
	cmd := &cobra.Command{
		Use:   "log [POD | deploy/NAME]",
		Short: "Show or change the levels of navarchd's log lines while it runs",
		Long: `Shows the least level of log lines of each scope, at every process of the control plane, or at a Pod or the Pods of a Deployment alone. With --level or
--reset it changes the levels first. A change lasts until the process ends. It is made at a loopback address of the Pod (--ctrlz-addr of navarchd), so it
needs the right to forward ports to Pods of the control plane. Without a cluster, pass this address as --server. istioctl admin log works as well.`,
		Example: `  navarchctl log
  navarchctl log --level ads:debug,ca:debug
  navarchctl log deploy/istiod-ingest --level debug
  navarchctl log --reset`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			defer at.close()
			changes, err := levelChanges(levels, reset)
			if err != nil {
				return err
			}
			at.fallback = "127.0.0.1:" + strconv.Itoa(port)
			pages, err := at.controlZ(cmd.Context(), args, port)
			if err != nil {
				return err
			}
			said, failed := changeLevels(cmd.Context(), pages, changes)
			if len(said) == 0 {
				return failed
			}
			r := rowsOfLevels(said)
			if levels != "" {
				r.next = nextIs("the levels of the start again", slices.Concat([]string{"log"}, args, []string{"--reset"})...)
			}
			err = format.write(cmd, r)
			if len(changes) == 0 && failed != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", failed)
				failed = nil
			}
			return errors.Join(err, failed)
		},
	}
	at.bindAt(cmd.Flags(), "--ctrlz-addr of navarchd", "127.0.0.1:"+strconv.Itoa(controlZPort))
	cmd.Flags().StringVar(&levels, "level", "",
		"Levels to set, as LEVEL for all scopes or SCOPE:LEVEL, with commas between: debug, info, warn, error, fatal, none.")
	cmd.Flags().BoolVar(&reset, "reset", false, "Set all scopes to the levels that the process started with.")
	cmd.Flags().IntVar(&port, "ctrlz-port", controlZPort, "Port of --ctrlz-addr of navarchd.")
	cmd.MarkFlagsMutuallyExclusive("level", "reset")
	cmd.ValidArgsFunction = offerFirst(at.podNames)
	format.bindRows(cmd)
	return cmd
}

// rowsOfLevels returns the levels as the command's result, for every output format.
func rowsOfLevels(said []levelled) rows {
	r := rows{value: levelRows(said), table: func(w io.Writer, _ bool) error { return writeLevels(w, said) }}
	for _, l := range levelRows(said) {
		r.names = append(r.names, l.Scope)
	}
	return r
}

// podNames returns the names of the control plane's ready Pods, for completion in a shell. With --server it returns
// nil.
func (c *controlPlane) podNames(ctx context.Context, _ *cobra.Command, _ []string) (names []string, err error) {
	defer c.close()
	_, err = c.pages(ctx)
	for _, pod := range c.pods {
		names = append(names, pod.Name)
	}
	return names, err
}

// levelChanges parses --level and --reset. It returns nil if neither is set. The error names the invalid part of
// --level.
func levelChanges(levels string, reset bool) (changes []levelChange, err error) {
	if reset {
		return []levelChange{{}}, nil
	}
	if levels == "" {
		return nil, nil
	}
	if _, _, err := obs.Level(levels); err != nil {
		return nil, fmt.Errorf("--level: %w", err)
	}
	for part := range strings.SplitSeq(levels, ",") {
		scope, level, scoped := strings.Cut(strings.TrimSpace(part), ":")
		if !scoped {
			scope, level = "", scope
		}
		if scope == "all" {
			scope = ""
		}
		changes = append(changes, levelChange{scope, level})
	}
	return changes, nil
}

// controlZ returns the addresses at which log levels can be changed. With --server they are the addresses of that flag,
// and args must be empty. Without --server they are the given port of all ready Pods of the control plane. A Pod or a
// workload in args then restricts the result to this Pod, or to the Pods of this workload.
func (c *controlPlane) controlZ(ctx context.Context, args []string, port int) (pages []page, err error) {
	found, err := c.pages(ctx)
	if err != nil {
		return nil, err
	}
	const what, help = "the log levels of navarchd",
		"--ctrlz-addr of navarchd says where they are changed; its log says if it could not be opened"
	if len(c.pods) == 0 {
		if len(args) > 0 {
			return nil, fmt.Errorf("%s: a Pod or workload cannot be named together with --server", args[0])
		}
		for _, p := range found {
			pages = append(pages, page{address: p.address, by: p.by, what: what, help: help})
		}
		return pages, nil
	}
	pods := c.pods
	if len(args) > 0 {
		if pods, err = c.podsNamed(ctx, args[0]); err != nil {
			return nil, err
		}
	}
	for _, pod := range pods {
		pages = append(pages, page{address: pod.String(), by: c.cluster.Context, what: what, help: help, url: "http://localhost:" + strconv.Itoa(port), client: pod.Client()})
	}
	return pages, nil
}

// podsNamed returns the control plane's ready Pods that POD, pod/POD or a workload (deploy/NAME) selects. Errors: the
// kind is unknown, the Pods of the workload cannot be read, or no ready Pod is selected.
func (c *controlPlane) podsNamed(ctx context.Context, object string) ([]*cluster.Pod, error) {
	names := []string{object}
	if kind, name, is := strings.Cut(object, "/"); is {
		names = []string{name}
		if resource := workloadKinds[kind]; resource != "" {
			var err error
			if names, err = c.podsOf(ctx, resource, c.cluster.Namespace, name); err != nil {
				return nil, fmt.Errorf("%s in namespace %s: %w", object, c.cluster.Namespace, err)
			}
		} else if kind != "pod" && kind != "pods" && kind != "po" {
			return nil, fmt.Errorf("%s: want POD, or a workload as deploy/NAME", object)
		}
	}
	pods := slices.DeleteFunc(slices.Clone(c.pods), func(p *cluster.Pod) bool { return !slices.Contains(names, p.Name) })
	if len(pods) == 0 {
		return nil, fmt.Errorf("%s in namespace %s: no ready Pod of the control plane belongs to it%s",
			object, c.cluster.Namespace, c.unasked(names))
	}
	return pods, nil
}

// unasked returns the reasons why the Pods with these names received no request. It is empty if no reason is known, for
// example for Pods that do not belong to the control plane.
func (c *controlPlane) unasked(names []string) (why string) {
	for _, missing := range c.missing {
		if name, _, _ := strings.Cut(missing, " "); slices.Contains(names, name) {
			why += ": " + missing
		}
	}
	return why
}

// levelled has the log levels of one process.
type levelled struct {
	page   page
	scopes []controlz.Scope
}

// readLevels reads the levels of all processes, concurrently. The first result has the levels of the processes that
// answered. The error joins the errors of the other processes.
func readLevels(ctx context.Context, pages []page) (said []levelled, failed error) {
	all := make([]levelled, len(pages))
	errs := atEach(pages, func(i int, p page) error {
		all[i].page = p
		return p.read(ctx, controlz.Root, &all[i].scopes)
	})
	for i, err := range errs {
		if err == nil {
			said = append(said, all[i])
		}
	}
	return said, errors.Join(errs...)
}

// changeLevels makes the changes at all processes that answer, and returns their levels afterwards. The error joins the
// errors of processes that did not answer or refused a change. If an answering process lacks the scope of a change,
// changeLevels changes no level. In this case it returns no levels, and the error reports only the missing scope.
// Without changes, changeLevels only reads the levels.
func changeLevels(ctx context.Context, pages []page, changes []levelChange) (said []levelled, failed error) {
	said, failed = readLevels(ctx, pages)
	if len(changes) == 0 || len(said) == 0 {
		return said, failed
	}
	for _, change := range changes {
		if err := change.possible(said); err != nil {
			return nil, fmt.Errorf("%w; no level is changed", err)
		}
	}
	answered := make([]page, len(said))
	for i, one := range said {
		answered[i] = one.page
	}
	refused := errors.Join(atEach(answered, func(i int, p page) error { return p.change(ctx, said[i].scopes, changes) })...)
	said, gone := readLevels(ctx, answered)
	return said, errors.Join(failed, refused, gone)
}

// writeLevels prints the levels as a table, one line for each level of a scope.
func writeLevels(w io.Writer, said []levelled) error {
	rows := [][]string{{"SCOPE", "LEVEL", "PROCESSES", "LINES ABOUT"}}
	for _, l := range levelRows(said) {
		where := strings.Join(l.Processes, ", ")
		if len(l.Processes) == len(said) && len(said) > 1 {
			where = fmt.Sprintf("all %d", len(said))
		}
		rows = append(rows, []string{show.Printable(l.Scope), show.Printable(l.Level), where, show.Printable(l.About)})
	}
	return show.Table(w, rows)
}

// possible returns an error if a process lacks the scope of the change. The error names the process and its scopes.
func (c levelChange) possible(said []levelled) error {
	for _, one := range said {
		if c.scope == "" || slices.ContainsFunc(one.scopes, func(s controlz.Scope) bool { return s.Name == c.scope }) {
			continue
		}
		var names []string
		for _, s := range one.scopes {
			names = append(names, show.Printable(s.Name))
		}
		return fmt.Errorf("--level: %s has no scope %q; it has %s", one.page.address, c.scope, strings.Join(names, ", "))
	}
	return nil
}

// change makes the changes at one process, in the order of the list. The argument scopes lists the scopes of this
// process. The method stops at the first error.
func (p page) change(ctx context.Context, scopes []controlz.Scope, changes []levelChange) error {
	for _, c := range changes {
		for _, s := range scopes {
			if c.scope != "" && c.scope != s.Name {
				continue
			}
			method, body := http.MethodDelete, []byte(nil)
			if c.level != "" {
				method = http.MethodPut
				var err error
				if body, err = json.Marshal(controlz.Scope{Name: s.Name, OutputLevel: c.level}); err != nil {
					return err
				}
			}
			if _, err := p.ask(ctx, method, controlz.Root+"/"+url.PathEscape(s.Name), "", body); err != nil {
				return err
			}
		}
	}
	return nil
}

// heldLevel is a level of a scope, with the processes at which the scope has this level.
type heldLevel struct {
	Scope     string   `json:"scope"`
	Level     string   `json:"level"`
	Processes []string `json:"processes"`
	About     string   `json:"about"`
}

// levelRows groups the processes by scope and level, sorted by the name of the scope.
func levelRows(said []levelled) (all []heldLevel) {
	for _, one := range said {
		for _, s := range one.scopes {
			at := slices.IndexFunc(all, func(l heldLevel) bool { return l.Scope == s.Name && l.Level == s.OutputLevel })
			if at < 0 {
				at = len(all)
				all = append(all, heldLevel{Scope: s.Name, Level: s.OutputLevel, About: s.Description})
			}
			all[at].Processes = append(all[at].Processes, one.page.address)
		}
	}
	slices.SortStableFunc(all, func(a, b heldLevel) int { return cmp.Compare(a.Scope, b.Scope) })
	return all
}
