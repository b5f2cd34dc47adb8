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

// trust is the access to the keyring: etcd and the key encryption key (KEK). Both together suffice to change the mesh's
// trust.
type trust struct {
	etcd
	domain string // trust domain
	kek    string // URI of the KEK
}

func caCommand() *cobra.Command {
	t := &trust{}
	cmd := &cobra.Command{Use: "ca", Short: "The certificate authority: status, rotation, revocation (needs etcd and the KEK)",
		Long: `Reads and changes the keyring in etcd. Access to etcd and the key encryption key together suffice to change the mesh's
trust. navarchd has no API for these commands. With --data-dir they use the embedded etcd of a running navarchd.`,
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
	cmd := &cobra.Command{Use: "status", Short: "List the epochs of signing keys, the holders that a rotation waits for, and revocations",
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
		Short:   "Print the root certificates that all peers must trust, as PEM. A new agent verifies the CA with them",
		Example: `  navarchctl ca roots --data-dir out/demo/data >root-cert.pem`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, k *keyring.Keyring) error {
				if _, err := k.Status(ctx); err != nil { // State has the bundle only after the first read of etcd
					return err
				}
				_, err := cmd.OutOrStdout().Write(issue.EncodeCertificates(k.State().Bundle...))
				return err
			})
		}}
}

func (t *trust) rotate() *cobra.Command {
	var force bool
	cmd := &cobra.Command{Use: "rotate", Short: "Publish a new root, which signs once the holders of all certificates have it",
		Example: `  navarchctl ca rotate --data-dir out/demo/data
  navarchctl ca status --data-dir out/demo/data   # the holders that the rotation waits for`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, k *keyring.Keyring) error { return k.Rotate(ctx, force) })
		}}
	cmd.Flags().BoolVar(&force, "force", false,
		"Sign with the new root without waiting. Holders without the new root lose their connections.")
	return cmd
}

func (t *trust) abort() *cobra.Command {
	return &cobra.Command{Use: "abort", Short: "Withdraw a new root before it signs",
		Example: `  navarchctl ca abort --data-dir out/demo/data`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, k *keyring.Keyring) error { return k.Abort(ctx) })
		}}
}

func (t *trust) revoke() *cobra.Command {
	var serials, identities []string
	cmd := &cobra.Command{Use: "revoke --serial S | --identity spiffe://...", Short: "Revoke certificates, or an identity",
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
					last := "no certificate is known"
					if !d.Until.IsZero() {
						last = "the last certificate expires at " + d.Until.UTC().Format(time.RFC3339)
					}
					fmt.Fprintf(cmd.OutOrStdout(), "denied: %s (%d journalled certificates; %s)\n", d.Identity, d.Leaves, last)
				}
				if len(done.Unknown) > 0 {
					fmt.Fprintf(cmd.OutOrStdout(),
						"revoked, but missing from the journal: %s (to revoke their renewals too, revoke the identity)\n",
						strings.Join(done.Unknown, " "))
				}
				return nil
			})
		}}
	cmd.Flags().StringSliceVar(&serials, "serial", nil, "Serial number of a certificate, hexadecimal. Its renewals are revoked too.")
	cmd.Flags().StringSliceVar(&identities, "identity", nil,
		"SPIFFE ID. The identity gets no new certificates, and proxies refuse its existing certificates.")
	return cmd
}

func (t *trust) restore() *cobra.Command {
	var identities []string
	cmd := &cobra.Command{Use: "restore --identity spiffe://...",
		Short:   "Let a revoked identity get certificates again; its earlier certificates move to the revocation lists",
		Example: `  navarchctl ca restore --data-dir out/demo/data --identity spiffe://cluster.local/ns/shop/sa/web`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, k *keyring.Keyring) error { return k.Restore(ctx, identities) })
		}}
	cmd.Flags().StringSliceVar(&identities, "identity", nil, "SPIFFE ID.")
	if err := cmd.MarkFlagRequired("identity"); err != nil {
		panic(err) // only if the flag is not defined above
	}
	return cmd
}

// with calls the function do with an existing keyring, for at most 30 s. It never creates a keyring, and leaves the
// maintenance of the keyring to the replicas. Errors: a flag is invalid, the KEK cannot be used, etcd fails, the mesh
// has no keyring, or the error of do.
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

// operate runs the keyring, and calls the function do meanwhile. Errors: those of etcd, a mesh without a keyring, or
// the error of do.
func (t *trust) operate(ctx context.Context, store *kv.Store, cfg keyring.Config, do func(context.Context, *keyring.Keyring) error) error {
	blobs, _, err := store.Blobs(ctx, "keys/", 0)
	if err != nil {
		return fmt.Errorf("read the keyring: %w", err)
	}
	if len(blobs) == 0 {
		return fmt.Errorf("mesh %q has no keyring yet: start navarchd with role ca, which creates the keyring", t.mesh)
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

// reportTable prints the state of the keyring for people.
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
