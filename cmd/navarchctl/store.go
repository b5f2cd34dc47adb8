package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/store/kv"
)

func storeCommand() *cobra.Command {
	e := &etcd{}
	cmd := &cobra.Command{Use: "store",
		Short:   "Show and change the store: records that others changed, the revision that writes to Kubernetes (needs etcd)",
		Example: "  navarchctl store adopt --data-dir out/demo/data"}
	e.bind(cmd.PersistentFlags())
	cmd.PersistentFlags().StringVar(&e.revision, "revision", "",
		"Revision of the control plane, whose records these are (default: the default one).")
	cmd.AddCommand(replaced("held", "navarchctl removals list"),
		replaced("accept-removal", "navarchctl removals accept ID"), e.adopt(), e.promote(), e.roles())
	return cmd
}

// with opens the store, runs one operation on it within the timeout, and closes the store. The error joins the errors
// of the operation and of closing. If the store cannot be opened, the operation does not run.
func (e *etcd) with(ctx context.Context, timeout time.Duration, do func(context.Context, *kv.Store) error) error {
	store, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return errors.Join(do(ctx, store), store.Close())
}

// replaced returns a hidden command in place of a removed command. The hidden command fails with an error that names
// the replacement.
func replaced(use, by string) *cobra.Command {
	return &cobra.Command{Use: use, Short: "Gone: " + by + " takes its place",
		Example: "  " + by, Hidden: true, DisableFlagParsing: true, RunE: func(*cobra.Command, []string) error {
			return fmt.Errorf("navarchctl store %s is no more: %s takes its place; it asks the control plane, and needs neither etcd nor a digest",
				use, by)
		}}
}
