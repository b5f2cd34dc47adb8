package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/clock"
	"navarch.io/navarch/store/kv"
)

// trust is the access to the keyring: etcd and the key encryption key. With both one can change the mesh's trust.
type trust struct {
	etcd
	domain string
	kek    string
}

func caCommand() *cobra.Command {
	t := &trust{}
	cmd := &cobra.Command{Use: "ca", Short: "The certificate authority: status, rotation, revocation (needs etcd and the KEK)",
		Long: `Works on the keyring in etcd, with the key encryption key: who has both may change what the mesh trusts, and no address of
navarchd can be asked to. With --data-dir it is the embedded etcd of a navarchd that runs.`,
		Example: "  navarchctl ca status --data-dir out/demo/data"}
	f := cmd.PersistentFlags()
	t.etcd.bind(f)
	f.StringVar(&t.domain, "trust-domain", "cluster.local", "Trust domain of the mesh.")
	f.StringVar(&t.kek, "kek", "", "Key encryption key, as navarchd's --kek (default, with --data-dir: the file in it).")
	cmd.AddCommand(t.status(), t.roots(), t.rotate(), t.abort(), t.revoke(), t.restore())
	return cmd
}

func (t *trust) status() *cobra.Command {
	var format output
	cmd := &cobra.Command{Use: "status", Short: "Epochs of signing keys, who a rotation waits for, what is revoked",
		Example: `  navarchctl ca status --data-dir out/demo/data
  navarchctl ca status --etcd-endpoints https://etcd:2379 --kek kms:/run/kms.sock`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, k *keyring.Keyring) error {
				report, err := k.Status(ctx)
				if err != nil {
					return err
				}
				r := rows{value: report, table: func(w io.Writer, _ bool) error { return reportTable(w, report) }}
				for _, e := range report.Epochs {
					r.names = append(r.names, fmt.Sprint(e.Number))
				}
				return format.write(cmd, r)
			})
		}}
	format.bindRows(cmd)
	return cmd
}

func (t *trust) roots() *cobra.Command {
	return &cobra.Command{Use: "roots",
		Short:   "Print the roots that everybody trusts now, as PEM: what a new agent is given to verify the CA with",
		Example: `  navarchctl ca roots --data-dir out/demo/data >root-cert.pem`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, k *keyring.Keyring) error {
				if _, err := k.Status(ctx); err != nil { // the status has been read by then
					return err
				}
				_, err := cmd.OutOrStdout().Write(issue.EncodeCertificates(k.State().Bundle...))
				return err
			})
		}}
}

func (t *trust) rotate() *cobra.Command {
	var force bool
	cmd := &cobra.Command{Use: "rotate", Short: "Publish a new root; it signs once the holder of every leaf has it",
		Example: `  navarchctl ca rotate --data-dir out/demo/data
  navarchctl ca status --data-dir out/demo/data   # whom it waits for`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, k *keyring.Keyring) error { return k.Rotate(ctx, force) })
		}}
	cmd.Flags().BoolVar(&force, "force", false, "Sign with the new root without waiting: who does not have it yet loses its connections.")
	return cmd
}

func (t *trust) abort() *cobra.Command {
	return &cobra.Command{Use: "abort", Short: "Take back a new root that does not sign yet",
		Example: `  navarchctl ca abort --data-dir out/demo/data`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, k *keyring.Keyring) error { return k.Abort(ctx) })
		}}
}

func (t *trust) revoke() *cobra.Command {
	var serials, identities []string
	cmd := &cobra.Command{Use: "revoke --serial S | --identity spiffe://...", Short: "Revoke certificates, or all of an identity",
		Example: `  navarchctl ca revoke --data-dir out/demo/data --serial 3f9a
  navarchctl ca revoke --data-dir out/demo/data --identity spiffe://cluster.local/ns/shop/sa/web`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(serials)+len(identities) == 0 {
				return errors.New("--serial or --identity is needed")
			}
			return t.with(cmd.Context(), func(ctx context.Context, k *keyring.Keyring) error {
				done, err := k.Revoke(ctx, serials, identities)
				if err != nil {
					return err
				}
				if len(done.Serials) > 0 {
					fmt.Fprintf(cmd.OutOrStdout(), "revoked: %s\n", strings.Join(done.Serials, " "))
				}
				for _, d := range done.Denied {
					fmt.Fprintf(cmd.OutOrStdout(), "denied: %s, with %d certificates, the last of which ends at %s\n",
						d.Identity, d.Leaves, d.Until.UTC().Format(time.RFC3339))
				}
				if len(done.Unknown) > 0 {
					fmt.Fprintf(cmd.OutOrStdout(),
						"not in the journal, revoked without later renewals (revoke the identity to end those): %s\n", strings.Join(done.Unknown, " "))
				}
				return nil
			})
		}}
	cmd.Flags().StringSliceVar(&serials, "serial", nil, "Serial number of a certificate, hexadecimal: it and those that renewed it.")
	cmd.Flags().StringSliceVar(&identities, "identity", nil, "SPIFFE ID: it gets no new certificates, and proxies refuse those that it has.")
	return cmd
}

func (t *trust) restore() *cobra.Command {
	var identities []string
	cmd := &cobra.Command{Use: "restore --identity spiffe://...", Short: "Let a revoked identity get certificates again; those that it had are put into the revocation lists",
		Example: `  navarchctl ca restore --data-dir out/demo/data --identity spiffe://cluster.local/ns/shop/sa/web`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, k *keyring.Keyring) error { return k.Restore(ctx, identities) })
		}}
	cmd.Flags().StringSliceVar(&identities, "identity", nil, "SPIFFE ID.")
	if err := cmd.MarkFlagRequired("identity"); err != nil {
		panic(err) // a flag that was not bound
	}
	return cmd
}

// with runs one operation as a replica of an existing keyring. It never creates one.
func (t *trust) with(ctx context.Context, do func(context.Context, *keyring.Keyring) error) error {
	kek := t.kek
	if t.dataDir != "" && kek == "" {
		kek = "file:" + filepath.Join(t.dataDir, "kek.key")
	}
	domain, err := spiffeid.TrustDomainFromString(t.domain)
	if err != nil {
		return fmt.Errorf("--trust-domain: %w", err)
	}
	provider, err := seal.NewProvider(kek, nil)
	if err != nil {
		return fmt.Errorf("--kek: %w", err)
	}
	sealer, err := seal.New(provider)
	if err != nil {
		return err
	}
	return t.etcd.with(ctx, 30*time.Second, func(ctx context.Context, store *kv.Store) error {
		return t.operate(ctx, store, keyring.Config{Store: store, Sealer: sealer, Mesh: t.mesh, TrustDomain: domain,
			Leads: func() bool { return false }, Logger: discard}, do)
	})
}

func (t *trust) operate(ctx context.Context, store *kv.Store, cfg keyring.Config, do func(context.Context, *keyring.Keyring) error) error {
	blobs, _, err := store.Blobs(ctx, "keys/", 0)
	if err != nil {
		return fmt.Errorf("read the keyring: %w", err)
	}
	if len(blobs) == 0 {
		return fmt.Errorf("mesh %q has no keyring: navarchd with role ca makes it", t.mesh)
	}
	own := clock.New(clock.Config{Store: store, Log: cfg.Logger})
	if err := own.ReadOthers(ctx); err != nil {
		return fmt.Errorf("compare the clocks: %w", err)
	}
	cfg.Clock = own
	k, err := keyring.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	err = do(ctx, k)
	stop()
	<-done
	return err
}

func reportTable(w io.Writer, r *keyring.Report) error {
	rows := [][]string{{"EPOCH", "STATUS", "ORIGIN", "SINCE", "ENDS", "SIGNER", "SUBJECT"}}
	for _, e := range r.Epochs {
		rows = append(rows, []string{fmt.Sprint(e.Number), string(e.Status),
			e.Origin, e.Since.UTC().Format(time.RFC3339), e.NotAfter.UTC().Format(time.RFC3339),
			show.ShortKey(e.Signer), e.Subject})
	}
	if err := show.Table(w, rows); err != nil {
		return err
	}
	if r.Rotating != 0 {
		fmt.Fprintf(w, "epoch %d waits for %d holders:\n", r.Rotating, len(r.Waiting))
		for _, h := range r.Waiting {
			what := h.Pod
			if h.Many {
				what = "more certificates than are journalled one by one"
			}
			fmt.Fprintf(w, "  %s %s (until %s)\n", h.Identity, what, h.NotAfter.UTC().Format(time.RFC3339))
		}
	}
	for _, line := range []struct{ what, text string }{{"sealed", r.Sealed}, {"alarm", r.Alarm}} {
		if line.text != "" {
			fmt.Fprintf(w, "%s: %s\n", line.what, line.text)
		}
	}
	if len(r.KEKs) > 0 {
		fmt.Fprintf(w, "sealed under: %s\n", strings.Join(r.KEKs, ", "))
	}
	if r.Serials > 0 || len(r.Identities) > 0 {
		fmt.Fprintf(w, "revoked: %d certificates, identities %s\n", r.Serials, strings.Join(r.Identities, " "))
	}
	return nil
}
