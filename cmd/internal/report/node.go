package report

import (
	"encoding/json"
	"errors"
	"unicode/utf8"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/cut"
	"navarch.io/navarch/store/intern"
)

// Node is a view.Node (a proxy's node as the planner reads it) with a JSON form. Values of labels and metadata that
// look like credentials are replaced by cut.Cut when a Node is encoded.
type Node view.Node

// plainNode has the fields of a Node, but not its methods.
type plainNode view.Node

// node is the JSON of a Node.
type node struct {
	plainNode
	Verified identity
	Unacted  []string `json:",omitempty"`
}

// identity is the JSON of a view.Identity. It leaves out the fields that depend on the configuration.
type identity struct{ Namespace, Account, Cluster string }

// MarshalJSON encodes the node, with credentials in labels and metadata replaced by cut.Cut. Of Verified it encodes
// only Namespace, Account and Cluster. n is not changed. The error is that of encoding/json.
func (n Node) MarshalJSON() ([]byte, error) {
	out := node{plainNode: plainNode(n), Unacted: n.Unacted.All(),
		Verified: identity{n.Verified.Namespace, n.Verified.Account, n.Verified.Cluster}}
	out.Metadata, out.Labels = cut.Map(n.Metadata), cut.Map(n.Labels)
	return json.Marshal(out)
}

// Bounds of a node in an archive. Servers accept only smaller nodes (push/view). The JSON of a node may have up to four
// times mostBytes.
const (
	mostTexts = 512
	mostBytes = 64 << 10
)

// unacted stores each distinct list Node.Unacted once, so that decoded nodes with equal lists share memory.
var unacted intern.Table[string]

// UnmarshalJSON decodes a node, and replaces all fields of n. It fails if the JSON exceeds 256 KiB, is not valid UTF-8
// or JSON, or has an unknown Kind or Mode. It also fails if the node has more than 512 labels, metadata keys, addresses
// or entries of Unacted. After an error n is unchanged.
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
