package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"navarch.io/navarch/store/obs"
)

// build is what a program says of itself, as /version prints it.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"golang_version,omitempty"`
	Platform string `json:"platform,omitempty"`
}

// versions are those of both sides.
type versions struct {
	Client build  `json:"client"`
	Server *build `json:"server,omitempty"` // nil: none answered
	Error  string `json:"server_error,omitempty"`
}

func versionCommand() *cobra.Command {
	var (
		address string
		brief   bool
		format  output
	)
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of navarchctl and of navarchd",
		Long:  "Prints the version of this program and that of the navarchd at --server. Where none answers, it prints its own and says so.",
		Example: `  navarchctl version
  navarchctl version --short
  navarchctl version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := versions{Client: build{obs.Version, runtime.Version(), obs.Platform()}, Server: &build{}}
			if err := server(address).read(cmd.Context(), "/version", all.Server); err != nil {
				all.Server, all.Error = nil, err.Error()
			}
			if format != short {
				return format.print(cmd.OutOrStdout(), all)
			}
			line := func(who string, b build) {
				if brief {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", who, b.Version)
					return
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s (%s, %s)\n", who, b.Version, b.Go, b.Platform)
			}
			line("client", all.Client)
			if all.Server == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "server: not known: %s\n", all.Error)
				return nil
			}
			line("server", *all.Server)
			return nil
		},
	}
	cmd.Flags().StringVar(&address, "server", defaultServer, "Address of navarchd's debug pages.")
	cmd.Flags().BoolVar(&brief, "short", false, "Only the versions.")
	format.bind(cmd, short, "json", "yaml")
	return cmd
}
