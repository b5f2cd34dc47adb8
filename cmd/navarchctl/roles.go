package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"navarch.io/navarch/store/kv"
)

// storeRoles lists Navarch's roles in an etcd with authentication, in the order of printing. The second field describes
// the users that need the role.
var storeRoles = []struct {
	role kv.Role
	is   string
}{
	{kv.RoleIngest, "processes with role ingest"},
	{kv.RoleXDS, "processes with role xds"},
	{kv.RoleCA, "processes with role ca"},
	{kv.RoleOperator, "people who promote revisions"},
}

func (e *etcd) roles() *cobra.Command {
	return &cobra.Command{Use: "roles", Short: "Print the etcd roles of a mesh as commands of etcdctl (without a connection to etcd)",
		Args: cobra.NoArgs,
		Long: "Prints the roles that etcd has to have for one mesh where its authentication is on, as commands of etcdctl. A process" +
			" with several\n" +
			"roles of Navarch has a user with several of these. With --revision, the roles are for that revision only, and\n" +
			"their names end with -REVISION. A user with these roles cannot change the keys of other revisions.\n" +
			"The command changes nothing.",
		Example: "  navarchctl store roles --mesh default\n  navarchctl store roles --mesh default | sh\n" +
			"  navarchctl store roles --revision canary | sh",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeRoles(cmd.OutOrStdout(), e.mesh, e.revision)
		}}
}

// writeRoles prints the etcdctl commands that create the roles of a mesh for one revision. An empty revision means the
// default revision. For other revisions, the names of the roles end with -REVISION. The error is that of w.
func writeRoles(w io.Writer, mesh, revision string) error {
	for _, r := range storeRoles {
		name := string(r.role)
		if revision != "" && revision != kv.DefaultRevision {
			name += "-" + revision
		}
		if _, err := fmt.Fprintf(w, "# %s: %s\netcdctl role add %s\n", name, r.is, name); err != nil {
			return err
		}
		for _, g := range kv.Grants(mesh, revision, r.role) {
			right := "read"
			if g.Write {
				right = "readwrite"
			}
			if _, err := fmt.Fprintf(w, "etcdctl role grant-permission %s %s %s %s\n", name, right, quoted(g.Key), quoted(g.End)); err != nil {
				return err
			}
		}
	}
	return nil
}

// quoted quotes a key for a POSIX shell. For an empty key it returns an empty text, without quotes. The end of a range
// is empty if a permission is for a single key.
func quoted(key string) string {
	if key == "" {
		return ""
	}
	return "'" + strings.ReplaceAll(key, "'", `'\''`) + "'"
}
