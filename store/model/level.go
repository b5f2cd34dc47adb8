package model

// Level is the highest level of the stored format that this build reads. It reads all lower levels too. A kind of
// record that earlier builds do not know belongs to a level above theirs, unless its mark is Closing. One key of the
// store contains the level in use, which is the highest level that every replica reads (shard/level). So no two
// replicas serve different configuration because one of them skips an unknown kind.
const Level = 1

// levels contains the level of each kind, if some builds do not know the kind. Kinds with 0 are stored at every level.
var levels = [NumKinds]uint32{}

// LevelOf returns the lowest level in use at which records of a kind are stored; 0: they are always stored. It is 0 for
// kinds with the mark Closing. A replica that does not know such a kind accepts no further streams of the proxies that
// the record covers, and a replica that knows it enforces the record. It is also 0 for values that are not kinds.
func LevelOf(kind Kind) uint32 {
	if kind >= NumKinds || Marks[kind] == Closing {
		return 0
	}
	return levels[kind]
}
