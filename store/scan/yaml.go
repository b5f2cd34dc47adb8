package scan

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// YAML returns an error if the first YAML document of a text has too many values to be decoded. The parameter limit is
// the largest permitted number of values. An alias counts as all values of the node that it names, because a few lines
// of nested aliases decode to millions of values. The document itself and keys count as values too. Each 64 bytes of a
// key or value count as one more value. Other errors: the text is not YAML, or an alias names a node that contains the
// alias.
func YAML(text []byte, limit int) error {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	n, err := (&tree{most: limit, known: map[*yaml.Node]int{}}).values(&document)
	if err == nil && n > limit {
		err = fmt.Errorf("it has more than %d values, or texts as long as these", limit)
	}
	return err
}

// valueBytes is the number of bytes of a key or value that count as one more value. The length counts because each
// alias repeats the whole text.
const valueBytes = 64

// tree counts values. It visits each node once, even if many aliases name the node.
type tree struct {
	most  int
	known map[*yaml.Node]int // number of values of each node that aliases name; 0: counting is in progress
}

func (t *tree) values(of *yaml.Node) (n int, err error) {
	if of.Kind == yaml.AliasNode {
		of = of.Alias
	}
	if of.Anchor == "" {
		return t.below(of)
	}
	switch counted, known := t.known[of]; {
	case known && counted == 0:
		return 0, errors.New("an alias names a node that contains the alias")
	case known:
		return counted, nil
	}
	t.known[of] = 0
	n, err = t.below(of)
	t.known[of] = n
	return n, err
}

func (t *tree) below(of *yaml.Node) (int, error) {
	all := 1 + len(of.Value)/valueBytes
	for _, c := range of.Content {
		n, err := t.values(c)
		if err != nil {
			return 0, err
		}
		all = min(all+n, t.most+1) // larger sums could overflow
	}
	return all, nil
}
