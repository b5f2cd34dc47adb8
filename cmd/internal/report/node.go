package report

import (
	"encoding/json"
	"errors"
	"unicode/utf8"

	"navarch.io/navarch/cmd/internal/report/cut"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/intern"
)

// Node is a proxy's node as the planner reads it. Values of its metadata that look like credentials are cut.
type Node view.Node

// plainNode has the fields of a Node without methods.
type plainNode view.Node

// node is the JSON of a Node.
type node struct {
	plainNode
	Verified identity
	Unacted  []string `json:",omitempty"`
}

// identity is the JSON of a view.Identity before the configuration is known.
type identity struct{ Namespace, Account, Cluster string }

// MarshalJSON returns the node without credentials. The error is that of the JSON.
func (n Node) MarshalJSON() ([]byte, error) {
	out := node{plainNode: plainNode(n), Unacted: n.Unacted.All(),
		Verified: identity{n.Verified.Namespace, n.Verified.Account, n.Verified.Cluster}}
	out.Metadata, out.Labels = cut.Map(n.Metadata), cut.Map(n.Labels)
	return json.Marshal(out)
}

// Bounds of a node. Servers refuse larger ones (push/view).
const (
	mostTexts = 512
	mostBytes = 64 << 10
)

// unacted has the lists of all nodes.
var unacted intern.Table[string]

// UnmarshalJSON decodes a node. Errors: the JSON, or a bound.
func (n *Node) UnmarshalJSON(raw []byte) error {
	if len(raw) > 4*mostBytes {
		return errors.New("a node is too large")
	}
	if !utf8.Valid(raw) {
		return errors.New("a node is not UTF-8")
	}
	var in node
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	if len(in.Metadata) > mostTexts || len(in.Labels) > mostTexts || len(in.Addresses) > mostTexts || len(in.Unacted) > mostTexts {
		return errors.New("a node has too many labels, addresses or metadata")
	}
	if in.Kind > view.Proxyless || in.Mode > view.None {
		return errors.New("a node is of an unknown kind")
	}
	*n = Node(in.plainNode)
	n.Verified = view.Identity{Namespace: in.Verified.Namespace, Account: in.Verified.Account, Cluster: in.Verified.Cluster}
	n.Unacted = unacted.List(in.Unacted...)
	return nil
}
