package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"navarch.io/navarch/ca/attest"
)

func tokenCommand() *cobra.Command {
	var (
		dataDir, namespace, account, pod, audience string
		ttl                                        time.Duration
	)
	create := &cobra.Command{
		Use:     "create --data-dir out/demo/data --namespace NS --service-account SA",
		Short:   "Print a token that navarchd with this data directory accepts, for development and VMs",
		Example: `  navarchctl token create --data-dir out/demo/data --namespace shop --service-account web > token`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			issuer, err := attest.OpenLocal(dataDir)
			if err != nil {
				return err
			}
			token, ends, err := issuer.MintBound(namespace, account, pod, audience, ttl)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "valid until %s\n", ends.UTC().Format(time.RFC3339))
			_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	f := create.Flags()
	f.StringVar(&dataDir, "data-dir", "", "navarchd's data directory.")
	f.StringVar(&namespace, "namespace", "", "Namespace of the workload.")
	f.StringVar(&account, "service-account", "", "Service account of the workload.")
	f.StringVar(&pod, "pod", "",
		"Pod or machine of the token. Replicas bound the resources of each Pod; callers whose tokens name no Pod share one bound.")
	f.StringVar(&audience, "audience", "istio-ca", "Audience of the token.")
	f.DurationVar(&ttl, "ttl", 12*time.Hour, "How long the token is valid; at most 30 days.")
	for _, name := range []string{"data-dir", "namespace", "service-account"} {
		if err := create.MarkFlagRequired(name); err != nil {
			panic(err) // only if the flag is not bound above
		}
	}
	cmd := &cobra.Command{Use: "token", Short: "Tokens of navarchd's own issuer",
		Example: "  navarchctl token create --data-dir out/demo/data --namespace shop --service-account web"}
	cmd.AddCommand(create)
	return cmd
}
