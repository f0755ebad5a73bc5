"""task"""
