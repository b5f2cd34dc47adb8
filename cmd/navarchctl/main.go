// Command navarchctl is the operator's tool. It shows the present or planned configuration of a proxy, and the objects
// that led to the configuration. It reads from a control plane, from an Envoy, from a saved file or, without any
// server, from a folder. It also operates the certificate authority.
//
// Owns: nothing.
// Reads: configuration folders, dumps, navarchd's HTTP pages, Envoy's admin interface, the API server, and etcd.
// Never: changes a cluster or a store, except by the commands for such changes, for example apply, tag and uninstall.
package main

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"navarch.io/navarch/cmd/internal/wire"
	_ "navarch.io/navarch/push/build/patch/envoytypes" // types that EnvoyFilters may name
	"navarch.io/navarch/store/obs"
)

func main() { wire.Main(root()) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "navarchctl",
		Short: "See what a proxy gets from Navarch, and why",
		Long: `navarchctl asks navarchd's debug pages, the admin interface of an Envoy (--envoy), a saved dump (--file), or no server at all
(--config-dir). The replicas of a control plane in Kubernetes are found by the kubeconfig (--kubeconfig, --context), in the namespace
--istio-namespace, by the labels app=istiod and istio.io/rev (--revision), and asked through the API server, as by kubectl port-forward. With
--server, the replica at this address is asked instead. Without a kubeconfig, the address is that of the environment variable NAVARCH_SERVER,
or else 127.0.0.1:8080.
--snapshot FILE is a report of a control plane (bug-report, snapshot save), on which the reading commands work as on the control plane.

The examples are for the top folder of a clone, with the mesh that HOLD=1 make demo starts; some need a cluster.`,
		Example: `  # Who is in sync, who refused what, what is withheld.
  navarchctl ps

  # Why a proxy has a cluster.
  navarchctl explain --proxy web-5d4f8c7b9-aaaaa.shop 'outbound|8000||catalog.shop.svc.cluster.local'`,
		Version:       obs.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetGlobalNormalizationFunc(istioNames)
	cmd.AddCommand(renderCommand(), planCommand(), compareCommand(), describeCommand(), explainCommand(), whyCommand(), authzCommand(),
		whoCanCommand(), testCommand(), suggestCommand(),
		patchesCommand(), analyzeCommand(), problemsCommand(), leaderCommand(), proxyStatusCommand(), proxyConfigCommand(),
		waitCommand(), applyCommand(), experimentalCommand(), versionCommand(), logCommand(),
		tokenCommand(), vmCommand(), caCommand(), storeCommand(), removalsCommand(),
		remoteSecretCommand(), injectCommand(), checkInjectCommand(), webhookCommand(),
		checkCommand(), tagCommand(), uninstallCommand(), migrateCommand(), adminCommand(), bugReportCommand(), snapshotCommand())
	bindSnapshot(cmd)
	completeFlags(cmd)
	describeExits(cmd)
	mistyped(cmd)
	guardStderr(cmd)
	return cmd
}

// istioFlags maps istioctl's names of flags to those of navarchctl.
var istioFlags = map[string]string{"istioNamespace": "istio-namespace", "failure-threshold": "fail-threshold", "use-kube": "live",
	"list-analyzers": "list"}

// istioNames returns navarchctl's name of a flag that has another name in istioctl. It returns other names unchanged.
func istioNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(cmp.Or(istioFlags[name], name))
}

var (
	errProblems = errors.New("the configuration has problems (--strict)")
	errMarked   = errors.New("something was refused or is withheld (--exit-code)")
	errUnsound  = errors.New("something was refused or is withheld, or a replica did not answer (--exit-code)")
)
