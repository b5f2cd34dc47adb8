package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/inspect"
)

func leaderCommand() *cobra.Command {
	var (
		at     = controlPlane{everyRole: true}
		format output
	)
	cmd := &cobra.Command{
		Use:   "leader",
		Short: "Show the leader of each revision, and its progress",
		Long: `The leader of a revision reads the cluster and writes its configuration to etcd. STORED: whether the leader has
stored all that it has read. CONFIRMED: the time since the API server last confirmed that the leader has seen all changes; up to two minutes are usual if
little changes. WRITES: whether the leader also writes to Kubernetes; only the leader of the promoted revision does.`,
		Example: `  navarchctl leader
  navarchctl leader --revision canary -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer at.close()
			answers, err := gatherOwn[*inspect.Leader](cmd.Context(), &at, "leader", cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			leaders := []inspect.Leader{}
			for _, a := range answers {
				if a.value.Self {
					leaders = append(leaders, *a.value)
				}
			}
			r := rows{value: leaders, table: func(w io.Writer, _ bool) error { return leaderTable(w, leaders, now(cmd.Context())) },
				next: nextIs("examine the whole control plane", "check")}
			for _, l := range leaders {
				r.names = append(r.names, l.Name)
			}
			err = format.write(cmd, r)
			if err == nil && len(leaders) == 0 {
				err = errors.New("no process leads: changes of the configuration reach no proxy; " +
					"the reason is in the logs of the processes with role ingest")
			}
			return err
		},
	}
	at.bind(cmd.Flags())
	format.bindRows(cmd)
	return cmd
}

func leaderTable(w io.Writer, all []inspect.Leader, now time.Time) error {
	rows := [][]string{{"LEADER", "REVISION", "EPOCH", "STORED", "CONFIRMED", "WRITES"}}
	for _, l := range all {
		confirmed, stored := "not yet", "all"
		if !l.Read.IsZero() {
			confirmed = fmt.Sprint(now.Sub(l.Read).Round(time.Second), " ago")
		}
		if !l.Settled {
			stored = "not yet"
		}
		rows = append(rows, []string{show.Printable(l.Name), show.Printable(l.Revision),
			strconv.FormatInt(l.Epoch, 10), stored, confirmed, strconv.FormatBool(l.Writes)})
	}
	return show.Table(w, rows)
}
