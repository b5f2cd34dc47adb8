package member

import "fmt"

// LevelPath is the path of the blob with the level of stored configuration in use (model.Level). Leaders write this
// blob (shard/level). A replica compares the level with its own when it becomes ready.
const LevelPath = "level/current"

// LevelValue encodes a level as ten digits. Encoded levels sort like the numbers, so that etcd can compare them.
func LevelValue(level uint32) []byte { return fmt.Appendf(nil, "%010d", level) }

// ParseLevel is the inverse of LevelValue. An error: raw is not an encoded level.
func ParseLevel(raw []byte) (uint32, error) {
	var level uint32
	if n, err := fmt.Sscanf(string(raw), "%010d", &level); n != 1 || err != nil || string(LevelValue(level)) != string(raw) {
		return 0, fmt.Errorf("level %q: want ten digits", raw)
	}
	return level, nil
}
