package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/kv"
)

func (e *etcd) promote() *cobra.Command {
	return &cobra.Command{Use: "promote REVISION",
		Short: "Let the leader of another revision write to Kubernetes", Args: cobra.ExactArgs(1),
		Long: "Statuses of objects, ConfigMaps with the roots, WorkloadEntries and automatic addresses belong to the whole mesh, so\n" +
			"only one revision of the control plane writes them. The command refuses a revision whose control plane has never been leader.",
		Example: "  navarchctl store promote canary --etcd-endpoints https://etcd-0:2379 --etcd-ca ca.crt --etcd-cert tls.crt --etcd-key tls.key",
		RunE: func(cmd *cobra.Command, args []string) error {
			e.revision = args[0]
			return e.with(cmd.Context(), 30*time.Second, func(ctx context.Context, store *kv.Store) error {
				before, err := promote(ctx, store)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "revision %s writes to Kubernetes from now on; before it was %s\n",
					show.Printable(store.RevisionName()), show.Printable(cmp.Or(before, "none")))
				return err
			})
		}}
}

// promote promotes a revision of the control plane, store.RevisionName. From then on the leader of this revision writes
// to Kubernetes. promote returns the previously promoted revision; empty: there was none. It returns an error if no
// process of the revision has ever been leader. It omits this check if the user of etcd lacks the right to read the
// necessary records. Other errors are etcd's.
func promote(ctx context.Context, store *kv.Store) (before string, err error) {
	switch led, err := store.Led(ctx); {
	case errors.Is(err, kv.ErrForbidden):
	case err != nil:
		return "", err
	case !led:
		return "", fmt.Errorf("revision %s has no records: no control plane with this REVISION has led in this mesh", store.RevisionName())
	}
	if before, err = store.Promoted(ctx); err != nil {
		return "", err
	}
	return before, store.Promote(ctx, store.RevisionName())
}
