package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/removal"
)

func storeCommand() *cobra.Command {
	e := &etcd{}
	cmd := &cobra.Command{Use: "store", Short: "What is stored: mass removals that are held, records that others changed, the revision that writes to Kubernetes (needs etcd)",
		Example: "  navarchctl store held --data-dir DIR"}
	e.bind(cmd.PersistentFlags())
	cmd.PersistentFlags().StringVar(&e.revision, "revision", "", "Revision of the control plane, whose records these are (default: the default one).")
	cmd.AddCommand(e.held(), e.acceptRemoval(), e.adopt(), e.promote(), e.roles())
	return cmd
}

// with runs one operation on the store.
func (e *etcd) with(ctx context.Context, timeout time.Duration, do func(context.Context, *kv.Store) error) error {
	store, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return errors.Join(do(ctx, store), store.Close())
}

// heldReport is what `store held` prints.
type heldReport struct {
	Held      *removal.Held      `json:"held"`
	Decisions []removal.Decision `json:"decisions,omitempty"`
}

func (e *etcd) held() *cobra.Command {
	var format output
	var audit bool
	cmd := &cobra.Command{Use: "held", Short: "Which objects vanished at once, or lost most of their endpoints, and are held, with the digest to accept that", Args: cobra.NoArgs,
		Example: "  navarchctl store held --data-dir DIR\n  navarchctl store held --etcd-endpoints https://etcd-0:2379 --etcd-ca ca.crt --etcd-cert tls.crt --etcd-key tls.key --audit",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.with(cmd.Context(), 30*time.Second, func(ctx context.Context, store *kv.Store) (err error) {
				var report heldReport
				if report.Held, report.Decisions, err = removal.Read(ctx, store); err != nil {
					return err
				}
				if !audit {
					report.Decisions = nil
				}
				if format != short {
					return format.print(cmd.OutOrStdout(), report)
				}
				return report.write(cmd.OutOrStdout(), audit)
			})
		}}
	cmd.Flags().BoolVar(&audit, "audit", false, "Also the last decisions on approvals.")
	format.bind(cmd, short, "json", "yaml")
	return cmd
}

func (r *heldReport) write(w io.Writer, audit bool) error {
	if h := r.Held; h == nil {
		fmt.Fprintln(w, "nothing is held")
	} else {
		fmt.Fprintf(w, "%d objects vanished at once, or lost most of their endpoints, and are held since %s by %s: %s\ndigest %s\n", h.Count, h.Since.Format(time.RFC3339), show.Printable(h.Leader), kindsOf(h.Kinds), show.Printable(h.Digest))
		for _, name := range h.Names {
			fmt.Fprintf(w, "  %s\n", show.Printable(name))
		}
		if more := h.Count - len(h.Names); more > 0 {
			fmt.Fprintf(w, "  and %d more\n", more)
		}
		fmt.Fprintf(w, "to let exactly these go: navarchctl store accept-removal %s\n", show.Printable(h.Digest))
	}
	if !audit {
		return nil
	}
	rows := [][]string{{"AT", "DIGEST", "OBJECTS", "OUTCOME", "CLAIMED OS USER", "CLAIMED HOST", "CLAIMED ETCD USER", "REASON"}}
	for _, d := range r.Decisions {
		a := d.Approval
		rows = append(rows, []string{d.At.Format(time.RFC3339), show.Printable(a.Digest), fmt.Sprint(d.Count), outcome(d), show.Printable(a.OSUser), show.Printable(a.Host), show.Printable(a.EtcdUser), show.Printable(a.Reason)})
	}
	return show.Table(w, rows)
}

func outcome(d removal.Decision) string {
	switch {
	case d.Refused != "":
		return "refused: " + show.Printable(d.Refused)
	case d.Failed != "":
		return "not applied: " + show.Printable(d.Failed)
	case d.Applied:
		return "applied"
	}
	return "accepted; the leader ended before it said whether it was applied"
}

func kindsOf(kinds map[string]int) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, fmt.Sprintf("%s %d", show.Printable(kind), kinds[kind]))
	}
	return strings.Join(parts, ", ")
}

// author is what this command states of who runs it.
func (e *etcd) author(reason string) removal.Approval {
	a := removal.Approval{Reason: reason, EtcdUser: e.User}
	if u, err := user.Current(); err == nil {
		a.OSUser = u.Username
	}
	a.Host, _ = os.Hostname() // it may be empty
	return a
}

func (e *etcd) acceptRemoval() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "accept-removal DIGEST", Short: "Let exactly the held objects go that a digest names, once", Args: cobra.ExactArgs(1),
		Example: "  navarchctl store accept-removal --data-dir DIR DIGEST --reason 'shop was closed'",
		Long: "Writes an approval to etcd and waits for the leader's decision; the approval is withdrawn when this command ends.\n" +
			"The leader refuses it where what is held is not what the digest names. It remembers the decision, with the name of the user and the host\n" +
			"that this command states: these are claims, who may write approvals is etcd's to say (role " + string(kv.RoleOperator) + ").",
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.with(cmd.Context(), 30*time.Second, func(ctx context.Context, store *kv.Store) error {
				approval := e.author(reason)
				approval.Digest = args[0]
				decision, err := removal.Accept(ctx, store, approval)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "accepted by %s: %d objects go (%s)\n", decision.Leader, decision.Count, kindsOf(decision.Kinds))
				return err
			})
		}}
	cmd.Flags().StringVar(&reason, "reason", "", "Why, for the record; at most 256 bytes.")
	return cmd
}
