package main

import "github.com/spf13/cobra"

// experimental is istioctl's word for the group of commands that may still change.
const experimental = "experimental"

// experimentalCommand returns the hidden command "experimental", with the commands that istioctl has below this word.
func experimentalCommand() *cobra.Command {
	cmd := &cobra.Command{Use: experimental, Aliases: []string{"x", "exp"}, Short: "Commands under istioctl's words", Hidden: true,
		Example: "  navarchctl experimental wait --for=distribution virtualservice reviews.backend\n" +
			"  navarchctl x authz check " + demoServer + "\n  navarchctl x precheck"}
	cmd.AddCommand(waitCommand(), describeCommand(), authzCommand(), checkCommand(), checkInjectCommand(), versionCommand(),
		proxyStatusCommand())
	return cmd
}

// adminCommand returns istioctl's command for log levels.
func adminCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "admin", Aliases: []string{"istiod"}, Hidden: true,
		Short:   "Commands for the control plane under istioctl's words",
		Example: "  navarchctl admin log --level ads:debug"}
	cmd.AddCommand(logCommand())
	return cmd
}

// Names of two proxies in the mesh of make demo, for examples.
const (
	demoClient = "web-5d4f8c7b9-aaaaa.shop"
	demoServer = "catalog-6b7d9f8c5-bbbbb.shop"
)
