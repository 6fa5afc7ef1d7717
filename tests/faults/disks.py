class Full:
    @staticmethod
    def cases(kills):
        return []
ReadOnly = Full
