package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/removal"
)

// removalsPage is the path at which the leader accepts a held removal, by a POST request. A held removal consists of
// objects that disappeared without a deletion, and that stay in effect.
const removalsPage = "/debug/removals"

// operatorAccount is the chart's service account that may accept removals. For a revision other than the default one,
// the account's name ends with -REVISION.
const operatorAccount = "navarch-operator"

// heldRemovals is the item of /api/v1/removals.
type heldRemovals struct {
	Leader string         `json:"leader"`
	Held   []removal.Hold `json:"held"`
}

func removalsCommand() *cobra.Command {
	at := &controlPlane{everyRole: true}
	cmd := &cobra.Command{Use: "removals", Short: "List and accept held removals: objects that disappeared without a deletion",
		Long: `The leader holds a removal without a deletion: the definition of a kind is gone, a list of the API server is older than the state seen before, or most of
a folder is missing. Held objects stay in effect until they are back, the removal's time ends, or an operator accepts the removal.`,
		Example: "  navarchctl removals list\n  navarchctl removals accept 3f9a0c1b2d"}
	at.bind(cmd.PersistentFlags())
	cmd.AddCommand(listRemovals(at), acceptRemovals(at))
	return cmd
}

func listRemovals(at *controlPlane) *cobra.Command {
	var format output
	cmd := &cobra.Command{Use: "list", Short: "List the removals that are held, with the ID to accept each", Args: cobra.NoArgs,
		Example: "  navarchctl removals list\n  navarchctl removals list --context west -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer at.close()
			held, err := at.removals(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			r := rows{value: held, table: held.write}
			for _, h := range held.Held {
				r.names = append(r.names, h.ID)
			}
			if len(held.Held) > 0 {
				r.next = nextIs("to let it go", "removals", "accept", held.Held[0].ID)
			}
			return format.write(cmd, r)
		}}
	format.bindRows(cmd)
	return cmd
}

// removals returns the held removals that any process lists, without duplicates. It is an error if no process answers.
// If some processes answer, it writes a line to warnings for each process that fails.
func (c *controlPlane) removals(ctx context.Context, warnings io.Writer) (heldRemovals, error) {
	said, err := gatherOwn[heldRemovals](ctx, c, "removals", warnings)
	if err != nil {
		return heldRemovals{}, err
	}
	all := heldRemovals{Held: []removal.Hold{}}
	for _, answer := range said {
		if all.Leader == "" {
			all.Leader = answer.value.Leader
		}
		for _, h := range answer.value.Held {
			if !slices.ContainsFunc(all.Held, func(o removal.Hold) bool { return o.ID == h.ID }) {
				all.Held = append(all.Held, h)
			}
		}
	}
	return all, nil
}

// anyRemovals returns the held removals by way of any process: all processes know the same. Errors are those of anyOf.
func (c *controlPlane) anyRemovals(ctx context.Context) (held heldRemovals, err error) {
	a, err := askAny[heldRemovals](ctx, c, "removals", url.Values{})
	switch {
	case errors.Is(err, errNoAPI): // processes of an older version
		return anyOf[heldRemovals](ctx, c, removalsPage)
	case err == nil && len(a.Items) == 1:
		held = a.Items[0]
	}
	return held, err
}

// write prints a table of the removals, and below the table the names of the objects of each removal. If wide is true,
// the table also has columns for the cluster and the source.
func (r heldRemovals) write(w io.Writer, wide bool) error {
	if len(r.Held) == 0 {
		_, err := fmt.Fprintln(w, "nothing is held")
		return err
	}
	rows := [][]string{{"ID", "OBJECTS", "NAMESPACE", "SINCE", "ENDS", "WHY"}}
	if wide {
		rows[0] = append(rows[0], "CLUSTER", "SOURCE")
	}
	for _, h := range r.Held {
		ends, namespace := "when it is accepted", h.Namespace
		if !h.Ends.IsZero() {
			ends = h.Ends.UTC().Format(time.RFC3339)
		}
		if namespace == "" {
			namespace = "(all)"
		}
		row := []string{show.Printable(h.ID), show.Printable(h.KindCounts()),
			show.Printable(namespace), h.Since.UTC().Format(time.RFC3339), ends, "they " + h.Why.String()}
		if wide {
			row = append(row, cmp.Or(h.Cluster, "-"), cmp.Or(h.Source, "-"))
		}
		rows = append(rows, row)
	}
	if err := show.Table(w, rows); err != nil {
		return err
	}
	for _, h := range r.Held {
		fmt.Fprintf(w, "\n%s:\n", show.Printable(h.ID))
		for _, name := range h.Names {
			fmt.Fprintf(w, "  %s\n", show.Printable(name))
		}
		if more := h.Count - len(h.Names); more > 0 {
			fmt.Fprintf(w, "  and %d more\n", more)
		}
	}
	return nil
}

func acceptRemovals(at *controlPlane) *cobra.Command {
	var account, tokenFile string
	cmd := &cobra.Command{Use: "accept ID...", Short: "Remove exactly the objects that removals list shows for an ID",
		Args:    cobra.MinimumNArgs(1),
		Example: "  navarchctl removals accept 3f9a0c1b2d",
		Long: `accept requests the leader to remove the objects. The leader authenticates the token of your kubeconfig at the API server, and reviews your right:
the verb accept of removals.navarch.io, in the namespace of the removal, or in all namespaces for a removal from several. The leader logs your name and
the removal. A kubeconfig with a client certificate has no token: then the command requests a token of the service account --service-account. That
account needs the right, and you need the right to create its tokens. For a configuration from files, run the command on the machine of the leader.`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			defer at.close()
			account = cmp.Or(account, inject.NameOf(operatorAccount, at.cluster.Revision))
			token, err := at.token(cmd.Context(), account, tokenFile, cmd.InOrStdin())
			if err != nil {
				return err
			}
			for _, id := range ids {
				said, err := at.accept(cmd.Context(), id, token)
				if err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), show.Printable(strings.TrimSpace(said)))
			}
			return nil
		}}
	cmd.ValidArgsFunction = offer(func(ctx context.Context, _ *cobra.Command, _ []string) (ids []string, err error) {
		defer at.close()
		held, err := at.removals(ctx, io.Discard)
		for _, h := range held.Held {
			ids = append(ids, h.ID)
		}
		return ids, err
	})
	cmd.Flags().StringVar(&account, "service-account", "",
		"Service account in the namespace of the control plane, for a kubeconfig with a client certificate (default: the chart's, "+
			operatorAccount+"[-REVISION]).")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "File with a token, for --server; - is standard input.")
	return cmd
}

// token returns the token that identifies the operator to the leader. The token of --token-file has priority, then the
// token of the kubeconfig. The result is empty if no kubeconfig is found, or for --server without --kubeconfig and
// --context. Without a token, the leader accepts only requests from its own machine.
//
// To use a kubeconfig's token for a --server on another machine is an error. Without --server, requests to the Pods go
// through the API server, which knows the token already.
func (c *controlPlane) token(ctx context.Context, account, file string, stdin io.Reader) (string, error) {
	if file != "" {
		return tokenOf(file, stdin)
	}
	switch named := c.cluster.Kubeconfig != "" || c.cluster.Context != ""; {
	case c.server != "" && !named, !c.cluster.Given():
		return "", nil
	case c.server != "" && !onThisMachine(c.server):
		return "", fmt.Errorf("--server %s is not on this machine: the kubeconfig's token is not sent there", c.server)
	}
	in, err := c.cluster.Open()
	if err != nil {
		return "", err
	}
	return in.Token(ctx, account)
}

// tokenOf reads a token from a file, or from stdin for "-", and removes white space around the token. An empty file is
// an error. Errors name the file.
func tokenOf(file string, stdin io.Reader) (string, error) {
	raw, err := contentOf(file, io.LimitReader(stdin, maxToken))
	token := strings.TrimSpace(string(raw))
	if err == nil && token == "" {
		err = errors.New("no token in it")
	}
	if err != nil {
		return "", fmt.Errorf("--token-file %s: %w", file, err)
	}
	return token, nil
}

// maxToken bounds a token on standard input, in bytes.
const maxToken = 64 << 10

// onThisMachine reports whether host:port is a loopback address or localhost. It returns false without a port.
func onThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "localhost" || net.ParseIP(host).IsLoopback())
}

// accept sends the request to accept a removal to one process after the other until the leader answers. It returns the
// leader's text. Errors: no process is found, a process refuses the request, or the leader is not among the processes
// that answer.
func (c *controlPlane) accept(ctx context.Context, id, token string) (string, error) {
	pages, err := c.pages(ctx)
	if err != nil {
		return "", err
	}
	var failed []error
	for _, p := range pages {
		said, err := p.ask(ctx, http.MethodPost, removalsPage+"?accept="+url.QueryEscape(id), token, nil)
		var no statusError
		switch {
		case err == nil:
			return string(said), nil
		case errors.As(err, &no) && no.status != http.StatusMisdirectedRequest:
			return "", errors.New(no.said)
		default:
			failed = append(failed, err)
		}
	}
	return "", fmt.Errorf("no process that answered is the leader: %w", errors.Join(failed...))
}
