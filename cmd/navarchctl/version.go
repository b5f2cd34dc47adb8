package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/obs"
)

// build is the version of a program, as /version prints it.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"golang_version,omitempty"`
	Platform string `json:"platform,omitempty"`
}

// versions is the output of the command version.
type versions struct {
	Client  build          `json:"client"`
	Server  *build         `json:"server,omitempty"`   // the only process, at one address; nil: no answer, or Servers is set
	Servers []replicaBuild `json:"replicas,omitempty"` // in a cluster, in a report, or at several addresses
	Error   string         `json:"server_error,omitempty"`
}

// replicaBuild is the version of one replica.
type replicaBuild struct {
	Replica string `json:"replica"`
	build
}

func versionCommand() *cobra.Command {
	var (
		at     controlPlane
		brief  bool
		format output
	)
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of navarchctl and of navarchd",
		Long: `Prints the version of this program and those of all replicas that the kubeconfig leads to, or of the navarchd at --server. Where none
answers, it prints its own and says so.`,
		Example: `  navarchctl version
  navarchctl version --short
  navarchctl version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			defer at.close()
			all := versionsOf(cmd.Context(), &at, cmd.ErrOrStderr())
			if format != short {
				return format.print(cmd.OutOrStdout(), all)
			}
			all.write(cmd.OutOrStdout(), brief)
			return nil
		},
	}
	at.bind(cmd.Flags())
	cmd.Flags().BoolVar(&brief, "short", false, "Only the versions.")
	format.bind(cmd, short, "json", "yaml")
	return cmd
}

// versionsOf returns the versions of this program and of the servers. If no server answers, Error says why.
func versionsOf(ctx context.Context, at *controlPlane, warnings io.Writer) versions {
	all := versions{Client: build{obs.Version, runtime.Version(), obs.Platform()}}
	answers, err := gather[build](ctx, at, "/version?output=json", warnings)
	if err != nil {
		all.Error = err.Error()
	}
	for _, a := range answers {
		if len(at.pods) == 0 && openedOf(ctx) == nil && len(at.found) == 1 {
			all.Server = &a.value
		} else {
			all.Servers = append(all.Servers, replicaBuild{a.from.address, a.value})
		}
	}
	return all
}

func (v versions) write(w io.Writer, brief bool) {
	line := func(who string, b build) {
		if brief {
			fmt.Fprintln(w, show.Printable(who+": "+b.Version))
			return
		}
		fmt.Fprintln(w, show.Printable(fmt.Sprintf("%s: %s (%s, %s)", who, b.Version, b.Go, b.Platform)))
	}
	line("client", v.Client)
	if v.Error != "" {
		fmt.Fprintln(w, "server: not known: "+show.Printable(v.Error))
	}
	if v.Server != nil {
		line("server", *v.Server)
	}
	for _, r := range v.Servers {
		line(r.Replica, r.build)
	}
}
